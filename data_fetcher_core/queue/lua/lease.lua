-- Hands out requests as if one by one: the lane at the front of the ring gives one and goes to the
-- back. Costs the same for any number of requests and lanes that are not handed out.
-- INCLUDE: begin once counts records lanes lists requests promote beat commit
-- KEYS: ring gates arrivals criticals delayed leased watched
-- ARGV: want token_base lane_count
-- REST: lanes to take from (lane_count of them; -1 for all), then lanes to steal from
-- RETURNS: microseconds to wait (-1: for ever), whether a request was passed over, lanes with their
--   intervals, then the leases in the order of their tokens, nil for one that is no longer held

want = tonumber(want)
local restricted = tonumber(lane_count) >= 0

local function token_at(index)
  return token_base .. struct.pack('>I4', index - 1)
end

-- `at` is the instant of the next change, 0 for now, -1 for none.
local function answer(at, suspect, values)
  local names, intervals, paced = {}, {}, {}
  for _, value in ipairs(values) do
    if value then table.insert(names, (split_lease(value))) end
  end
  learn(names)
  for _, name in ipairs(names) do
    if known[name].interval > 0 and not paced[name] then
      paced[name] = true
      table.insert(intervals, name)
      table.insert(intervals, known[name].interval)
    end
  end
  return {at < 0 and -1 or math.max(at - now, 0), suspect, intervals, unpack(values)}
end

if answered then
  local given, at, suspect = unpack(answered)
  local tokens = {}
  for index = 1, given do tokens[index] = token_at(index) end
  return answer(at, suspect, given > 0 and redis.call('HMGET', leased, unpack(tokens)) or {})
end

promote()

local held = redis.call('HLEN', leased)
local grants, removed, suspect, alone = {}, 0, 0, false

-- One death from the limit: held alone, so that no neighbour dies with it.
local function is_suspect(record)
  return record.deaths >= max_deaths - 1
end

if held == 1 then
  local _, raw = split_lease(redis.call('HVALS', leased)[1])
  local record = read(raw)
  alone = record ~= nil and is_suspect(record)
end

local function give_away(raw)
  bury_unreadable(raw)
  count('ready', -1)
  removed = removed + 1
end

local function discard(list)
  pass(list)
  count('ready', -1)
  removed = removed + 1
end

local function set_pace(lane)
  local arrival = tonumber(redis.call('ZSCORE', arrivals, lane.name)) or 0
  arrival = math.max(now, lane.arrival or arrival) + lane.interval
  lane.arrival = arrival
  lane.gate = math.max(lane.gate, arrival - lane.burst * lane.interval)
end

local function grant(lane, list)
  table.insert(grants, lease_value(lane.name, list.record.raw))
  alone = is_suspect(list.record)
  pass(list)
  count('ready', -1)
  lane.criticals = list.priority == CRITICAL and lane.criticals + 1 or 0
  lane.in_flight = lane.in_flight + 1
  if lane.interval > 0 then set_pace(lane) end
  lane.turn, lane.waits = nil, choose(lane, give_away) ~= nil
  place(lane)
end

-- One turn of a lane; what is cancelled or too old goes away on the way.
local function serve(lane)
  while removed < STEP do
    local list = choose(lane, give_away)
    if not list then
      lane.waits = false
      return place(lane)
    end
    local record = list.record
    if is_dropped(record) then
      discard(list)
    elseif record.expires_at > 0 and record.expires_at <= now then
      bury(record.raw, REASON_EXPIRED, 'it waited longer than it was to wait')
      discard(list)
    elseif is_suspect(record) and held + #grants > 0 then
      suspect = 1
      return
    else
      return grant(lane, list)
    end
  end
end

local function prepare(names)
  learn(names)
  local counts = critical_burst > 0 and #names > 0
    and redis.call('HMGET', criticals, unpack(names)) or {}
  for at, name in ipairs(names) do
    local lane = known[name]
    lane.criticals = tonumber(counts[at]) or 0
    lane.criticals_before = lane.criticals
    open_lists(lane)
  end
end

-- Serve lanes in the order of the ring, each once; then again and again those still in it.
local function go_round(next_page)
  local queue, at = next_page(), 1
  while #grants < want and removed < STEP and not alone do
    if at > #queue then
      local page = next_page()
      for _, lane in ipairs(page) do table.insert(queue, lane) end
      if #page == 0 then return end
    end
  end
end
