-- Hands out requests as if one by one: the lane at the front of the ring gives one and goes to the
-- back. Costs the same for any number of requests and lanes that are not handed out.
-- INCLUDE: begin once writes counts records lanes lists requests promote beat commit
-- KEYS: gates arrivals criticals delayed leased watched
-- ARGV: want token_base lane_count
-- REST: lanes to take from (lane_count of them; -1 for all), then lanes to steal from
-- RETURNS: microseconds to wait (-1: for ever), whether a request was passed over or keeps the
--   others waiting, whether the queue is drained, the instant, lanes with their intervals and
--   limits, then the leases in the order of their tokens, nil for one that is no longer held

want = tonumber(want)
local restricted = tonumber(lane_count) >= 0

local function token_at(index)
  return token_base .. struct.pack('>I4', index - 1)
end

-- `at` is the instant of the next change, 0 for now, -1 for none.
local function answer(at, suspect, drained, lanes, values)
  local paces_told, paced = {}, {}
  for _, lane in ipairs(lanes) do
    if (lane.interval > 0 or lane.limit > 0) and not paced[lane] then
      paced[lane] = true
      table.insert(paces_told, lane.name)
      table.insert(paces_told, lane.interval)
      table.insert(paces_told, lane.limit)
    end
  end
  local wait = at < 0 and -1 or math.max(at - now, 0)
  return {wait, suspect, drained and 1 or 0, now, paces_told, unpack(values)}
end

if answered then
  local given, at, suspect = unpack(answered)
  local tokens, lanes = {}, {}
  for index = 1, given do tokens[index] = token_at(index) end
  local values = given > 0 and redis.call('HMGET', leased, unpack(tokens)) or {}
  for _, value in ipairs(values) do
    if value then
      local name = split_lease(value)
      learn({name})
      table.insert(lanes, known[name])
    end
  end
  return answer(at, suspect, is_drained(), lanes, values)
end

promote()

local held = redis.call('HLEN', leased)
local grants, granting, removed, suspect, alone = {}, {}, 0, 0, false
local weight = 0

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
  return removed >= STEP
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
  grants[#grants + 1] = lane.envelope .. list.record.raw
  granting[#grants] = lane
  weight = weight + #list.record.raw
  alone = is_suspect(list.record)
  pass(list)
  count('ready', -1)
  lane.criticals = list.priority == CRITICAL and lane.criticals + 1 or 0
  lane.in_flight = lane.in_flight + 1
  if lane.interval > 0 then set_pace(lane) end
  local chosen, unfinished = choose(lane, give_away)
  lane.turn, lane.chosen, lane.waits = nil, chosen, chosen ~= nil or unfinished
  place(lane)
end

-- One turn of a lane; what is cancelled or too old goes away on the way.
local function serve(lane)
  while removed < STEP do
    local list, unfinished = lane.chosen, false
    if not list then list, unfinished = choose(lane, give_away) end
    lane.chosen = nil
    if unfinished then return end
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
      suspect, lane.is_passed = 1, true
      return
    else
      return grant(lane, list)
    end
  end
end

-- Lanes that went to the back of the ring in this step, in order.
local back = {}

local function wants_more()
  return #grants < want and removed < STEP and weight < STEP_BYTES and not alone
end

local function open_lane(lane)
  local row = critical_burst > 0 and redis.call('HGET', criticals, lane.name)
  lane.criticals = tonumber(row) or 0
  lane.was_criticals = lane.criticals
  lane.envelope = struct.pack('>H', #lane.name) .. lane.name
  open_lists(lane)
end

-- Serve each lane once. Those that are still in the ring then are at its back.
local function visit(lanes)
  for _, lane in ipairs(lanes) do
    if not wants_more() then return end
    local turn = lane.turn
    -- The limit may be lower than when it got its turn.
    place(lane)
    if lane.turn then
      if not lane.lists then open_lane(lane) end
      serve(lane)
    else
      removed = removed + 1
    end
    if lane.turn and lane.turn ~= turn then back[#back + 1] = lane end
  end
end

local function share_among(lane_total)
  share = math.min(math.ceil((want - #grants) / math.max(lane_total, 1)), MOST_READ) + 1
end

local function in_order(lanes)
  table.sort(lanes, function(one, other) return one.turn < other.turn end)
  return lanes
end

local function serve_ring()
  for _, lane in ipairs(all_known) do
    if lane.turn and lane.turn ~= lane.was_turn then table.insert(back, lane) end
  end
  in_order(back)
  local offset, names, page_size = 0, nil, nil
  repeat
    page_size = math.max(want - #grants, 8)
    names = learn_ring(offset, offset + page_size - 1)
    offset = offset + #names
    local lanes = {}
    for _, name in ipairs(names) do
      if known[name].turn then table.insert(lanes, known[name]) end
    end
    share_among(#lanes + (#names < page_size and #back or 0))
    visit(lanes)
  until #names < page_size or not wants_more()
  visit(back)
end

local function serve_only(names)
  local lanes, chosen = {}, {}
  learn(names)
  for _, name in ipairs(names) do
    local lane = known[name]
    if lane.turn and not lane.is_passed and not chosen[name] then
      chosen[name] = true
      table.insert(lanes, lane)
    end
  end
  share_among(#lanes)
  back = {}
  visit(in_order(lanes))
  visit(back)
end

local wanted_lanes, steal_lanes = {}, {}
for at = 1, tonumber(lane_count) do wanted_lanes[at] = take() end
for name in take do table.insert(steal_lanes, name) end
if restricted then
  serve_only(wanted_lanes)
  serve_only(steal_lanes)
else
  serve_ring()
end

-- The instant at which something else may become leasable.
local function next_change()
  if #grants == want or alone then return -1 end
  if may_be_due or removed >= STEP or weight >= STEP_BYTES then return 0 end
  local at = math.huge
  local due = redis.call('ZRANGE', delayed, promoted, promoted, 'WITHSCORES')
  local gate = redis.call(
    'ZRANGEBYSCORE', gates, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  for _, found in ipairs({due, gate}) do at = math.min(at, tonumber(found[2]) or at) end
  for _, lane in ipairs(all_known) do
    if lane.gate > now then at = math.min(at, lane.gate) end
  end
  return at < math.huge and at or -1
end

-- An arrival that is not later than the gate says nothing once the gate has opened.
local function write_paces()
  local debts, paid = {}, redis.call('ZRANGEBYSCORE', arrivals, '-inf', now, 'LIMIT', 0, STEP)
  for at = #paid, 1, -1 do
    local lane = known[paid[at]]
    if lane and lane.arrival then table.remove(paid, at) end
  end
  for _, lane in ipairs(all_known) do
    if lane.arrival and lane.arrival > lane.gate then
      table.insert(debts, lane.arrival)
      table.insert(debts, lane.name)
    elseif lane.arrival then
      table.insert(paid, lane.name)
    end
  end
  insert('ZADD', arrivals, debts)
  remove('ZREM', arrivals, paid)
end

local function write_criticals()
  for _, lane in ipairs(critical_burst > 0 and all_known or {}) do
    if lane.lists and lane.criticals ~= lane.was_criticals then
      if lane.criticals > 0 then
        insert('HSET', criticals, {lane.name, lane.criticals})
      else
        remove('HDEL', criticals, {lane.name})
      end
    end
  end
end

local pairs_leased = {}
for index, value in ipairs(grants) do
  pairs_leased[2 * index - 1] = token_at(index)
  pairs_leased[2 * index] = value
end
insert('HSET', leased, pairs_leased)
count('leased', #grants)
if restricted and #grants == 0 then
  insert('SADD', watched, wanted_lanes)
  insert('SADD', watched, steal_lanes)
  -- Nobody says when it waits no more. Who still does asks again soon, and is listed anew.
  if redis.call('TTL', watched) < 0 then insert('EXPIRE', watched, {86400}) end
end
write_paces()
write_criticals()
beat()
local at = next_change()
local drained = is_drained()
if alone then suspect = 1 end
remember({#grants, at, suspect})
-- Who wanted nothing only passes the signal on.
commit({urgent = true, took = #grants > 0 or want == 0})
return answer(at, suspect, drained, granting, grants)
