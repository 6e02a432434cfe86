-- What a step knows of the lanes it deals with, and where they stand: in the ring if something of
-- theirs is ready and may be served now, parked if it may not, nowhere if nothing is ready.
-- INCLUDE: begin writes
-- KEYS: ring parked gates inflight paces

local known, all_known, touched = {}, {}, {}

local function know(name, turn, parking, gate, in_flight, pace)
  local interval, burst, limit = -1, -1, -1
  if pace then interval, burst, limit = struct.unpack('>i8i8i8', pace) end
  local lane = {
    name = name, gate = tonumber(gate) or 0, in_flight = tonumber(in_flight) or 0,
    turn = tonumber(turn), parking = tonumber(parking), waits = turn or parking,
    own = {interval, burst, limit},
    interval = interval < 0 and lane_interval or interval,
    burst = burst < 0 and lane_burst or burst,
    limit = limit < 0 and lane_concurrency or limit,
  }
  lane.was = {turn = lane.turn, parking = lane.parking, gate = lane.gate,
    in_flight = lane.in_flight}
  known[name] = lane
  all_known[#all_known + 1] = lane
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
    local turns = redis.call('ZMSCORE', ring, unpack(page))
    local parkings = redis.call('ZMSCORE', parked, unpack(page))
    local opening = redis.call('ZMSCORE', gates, unpack(page))
    local flights = redis.call('HMGET', inflight, unpack(page))
    local own = redis.call('HMGET', paces, unpack(page))
    for at, name in ipairs(page) do
      know(name, turns[at], parkings[at], opening[at], flights[at], own[at])
    end
  end
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
  local entering, leaving = {}, {}
  for _, lane in ipairs(all_known) do
    local before, after = lane.was[field], lane[field]
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
    if lane.in_flight ~= lane.was.in_flight then
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
