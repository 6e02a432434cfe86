-- What a step knows of the lanes it deals with, and where they stand: in the ring if something of
-- theirs is ready and may be served now, parked if it may not, nowhere if nothing is ready.
-- INCLUDE: begin writes
-- KEYS: ring parked gates inflight paces

local known, all_known, touched = {}, {}, {}

local function know(name, turn, parking, gate, in_flight, pace)
  local interval, burst, limit = -1, -1, -1
  if pace then interval, burst, limit = struct.unpack('>i8i8i8', pace) end
  turn, parking = tonumber(turn), tonumber(parking)
  gate, in_flight = tonumber(gate) or 0, tonumber(in_flight) or 0
  local lane = {
    name = name, waits = turn or parking,
    turn = turn, parking = parking, gate = gate, in_flight = in_flight,
    was_turn = turn, was_parking = parking, was_gate = gate, was_in_flight = in_flight,
    interval = interval < 0 and lane_interval or interval,
    burst = burst < 0 and lane_burst or burst,
    limit = limit < 0 and lane_concurrency or limit,
  }
  known[name] = lane
  all_known[#all_known + 1] = lane
end

local function know_all(names, turns, parkings, opening)
  local flights = redis.call('HMGET', inflight, unpack(names))
  local own = redis.call('HMGET', paces, unpack(names))
  for at, name in ipairs(names) do
    if not known[name] then
      know(name, turns[at], parkings[at], opening[at], flights[at], own[at])
    end
  end
end

-- Read all that is stored of these lanes, in a few commands however many they are.
local function learn(names)
  local new, asked = {}, {}
  for _, name in ipairs(names) do
    if not known[name] and not asked[name] then
      asked[name] = true
      new[#new + 1] = name
    end
  end
  for first = 1, #new, STEP do
    local page = {unpack(new, first, math.min(first + STEP - 1, #new))}
    know_all(page, redis.call('ZMSCORE', ring, unpack(page)),
      redis.call('ZMSCORE', parked, unpack(page)), redis.call('ZMSCORE', gates, unpack(page)))
  end
end

-- A page of the ring. Of a lane that stands there, half of it is known beforehand.
local function learn_ring(first, last)
  local found = redis.call('ZRANGE', ring, first, last, 'WITHSCORES')
  local names, turns = {}, {}
  for at = 1, #found, 2 do
    names[#names + 1] = found[at]
    turns[#names] = found[at + 1]
  end
  if #names > 0 then know_all(names, turns, {}, {}) end
  return names
end

local function place(lane)
  local open = lane.waits and lane.gate <= now
    and (lane.limit == 0 or lane.in_flight < lane.limit)
  if open then
    lane.turn, lane.parking = lane.turn or next_number(), nil
  elseif lane.waits then
    lane.turn, lane.parking = nil, lane.parking or next_number()
  else
    lane.turn, lane.parking, lane.criticals = nil, nil, 0
  end
end

-- A step that settles several leases places lanes at its end, in the order they were touched.
local function touch(lane)
  if not lane.touched then
    lane.touched = true
    touched[#touched + 1] = lane
  end
end

local function place_touched()
  for _, lane in ipairs(touched) do place(lane) end
end

local function land(lane)
  lane.in_flight = math.max(lane.in_flight - 1, 0)
end

local function write_zset(zset, field)
  local entering, leaving, was = {}, {}, 'was_' .. field
  for _, lane in ipairs(all_known) do
    local before, after = lane[was], lane[field]
    if after and after ~= 0 and after ~= before then
      entering[#entering + 1] = after
      entering[#entering + 1] = lane.name
    elseif before and before ~= 0 and (not after or after == 0) then
      leaving[#leaving + 1] = lane.name
    end
  end
  insert('ZADD', zset, entering)
  remove('ZREM', zset, leaving)
end

local function write_lanes()
  write_zset(ring, 'turn')
  write_zset(parked, 'parking')
  write_zset(gates, 'gate')
  local flying, landed = {}, {}
  for _, lane in ipairs(all_known) do
    if lane.in_flight ~= lane.was_in_flight then
      if lane.in_flight > 0 then
        flying[#flying + 1] = lane.name
        flying[#flying + 1] = lane.in_flight
      else
        landed[#landed + 1] = lane.name
      end
    end
  end
  insert('HSET', inflight, flying)
  remove('HDEL', inflight, landed)
end
