-- Wakes those who wait: one element in a list while there may be something for them.
-- INCLUDE: begin writes counts lanes requests
-- KEYS: ring wake watched room
-- STEMS: wake_of

local function signal(key)
  if redis.call('LLEN', key) == 0 then insert('RPUSH', key, {'1'}) end
end

-- Nobody may be there to take it. Who comes later asks before it waits.
local function signal_lane(name)
  local key = wake_of .. name
  if redis.call('LLEN', key) > 0 then return end
  insert('RPUSH', key, {'1'})
  insert('EXPIRE', key, {60})
end

local function silence(key)
  if redis.call('LLEN', key) > 0 then drop(key) end
end

-- Lanes that can be leased from and could not, or that got something.
local function stirred()
  local names = {}
  for _, lane in ipairs(all_known) do
    if lane.turn and (lane.gained or lane.turn ~= lane.was_turn) then
      names[#names + 1] = lane.name
    end
  end
  return names
end

local function wake_watchers(names)
  if #names == 0 or redis.call('SCARD', watched) == 0 then return end
  for first = 1, #names, STEP do
    local page = {unpack(names, first, math.min(first + STEP - 1, #names))}
    for at, is_watched in ipairs(redis.call('SMISMEMBER', watched, unpack(page))) do
      if is_watched == 1 then signal_lane(page[at]) end
    end
  end
end

local function ring_after()
  local lanes = redis.call('ZCARD', ring)
  for _, lane in ipairs(all_known) do
    if lane.turn and not lane.was_turn then lanes = lanes + 1 end
    if lane.was_turn and not lane.turn then lanes = lanes - 1 end
  end
  return lanes
end

-- Who took something passes the signal on. Who took nothing does not: it would wake itself.
local function wake_for_work(took)
  local names = stirred()
  for _, lane in ipairs(all_known) do
    -- Something waits behind a gate, and who sleeps does not know when it opens.
    if lane.parking and lane.parking ~= lane.was_parking and lane.gate > now then
      table.insert(sooner, lane.name)
    end
  end
  for _, name in ipairs(sooner) do table.insert(names, name) end
  wake_watchers(names)
  if #sooner > 0 or is_over() or (took and is_drained()) then
    signal(wake)
  elseif ring_after() == 0 then
    -- That it is over may not have been heard yet.
    if not is_drained() then silence(wake) end
  elseif took or #names > 0 then
    signal(wake)
  end
end

local function wake_for_room(was_full)
  if capacity == 0 then return end
  if was_full or size() >= capacity then silence(room) else signal(room) end
end
