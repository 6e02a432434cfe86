-- Settles leases of the client, each for itself, with all it brings: children, checkpoint, result.
-- A token that the client does not hold changes nothing.
-- INCLUDE: begin once counts records lanes lists requests admit beat commit
-- KEYS: leased consumers results
-- ARGV: urgent client
-- REST: per settlement: packed move, then its checkpoint pairs, then its children
-- RETURNS: one byte per settlement (Outcome), one per child (Admission), then ids of duplicates

if answered then return answered end

local settlements, tokens = {}, {}
for packed in take do
  local move, reason, delay, token, head, detail, has_result, result, pair_count, child_count =
    struct.unpack('>BBI8Bc0I4c0Hc0BI4c0I4I4', packed)
  table.insert(tokens, token)
  table.insert(settlements, {move = move, reason = reason, delay = delay, token = token,
    head = head, detail = detail, result = has_result == 1 and result,
    addition = take_addition(pair_count, child_count)})
end

if redis.call('HEXISTS', consumers, client) == 0 then
  return {string.rep(string.char(OUTCOME_LOST), #settlements), '', {}}
end

local held, names = {}, {}
for at, value in ipairs(redis.call('HMGET', leased, unpack(tokens))) do
  if value then
    local lane, raw = split_lease(value)
    held[tokens[at]] = {lane = lane, raw = raw, record = read(raw)}
    table.insert(names, lane)
    for _, name in ipairs(lanes_of({settlements[at].addition})) do table.insert(names, name) end
  end
end
learn(names)

local results_added, settled_tokens = {}, {}

local function complete(settlement, lease)
  if lease.record then unmark(lease.record) end
  if settlement.result then table.insert(results_added, settlement.result) end
  count('completed', 1)
end

local function release(lane, raw, delay)
  count('retried', 1)
  if delay > 0 then make_wait(raw, delay) else make_ready(lane, raw) end
end

-- The record with the head that the settlement brings; nil if there is none to be had.
local function renewed(settlement, lease)
  if settlement.head == '' or not lease.record then return lease.record and lease.raw end
  local raw = settlement.head .. lease.raw:sub(lease.record.head_size + 1)
  return read(raw) and raw
end

local function move_on(settlement, lane, lease)
  local raw = renewed(settlement, lease)
  if settlement.move == MOVE_BURY and (raw or settlement.head == '') then
    bury(raw or lease.raw, settlement.reason, settlement.detail)
  elseif not raw then
    bury_unreadable(lease.raw)
  elseif settlement.move == MOVE_RELEASE then
    release(lane, raw, settlement.delay)
  else
    put_in_front(lane, raw)
  end
end

local outcomes, admissions, ids = {}, {}, {}

local function settle(settlement, lease)
  local lane = known[lease.lane]
  admit(settlement.addition, math.huge, admissions, ids)
  land(lane)
  touch(lane)
  table.insert(settled_tokens, settlement.token)
  if settlement.move == MOVE_COMPLETE then
    complete(settlement, lease)
  elseif lease.record and is_dropped(lease.record) then
    return OUTCOME_CANCELLED
  else
    move_on(settlement, lane, lease)
  end
  return OUTCOME_DONE
end

for at, settlement in ipairs(settlements) do
  local lease = held[settlement.token]
  held[settlement.token] = nil
  outcomes[at] = lease and settle(settlement, lease) or OUTCOME_LOST
end
place_touched()

count('leased', -#settled_tokens)
insert('RPUSH', results, results_added)
remove('HDEL', leased, settled_tokens)
beat()
local reply = {as_bytes(outcomes), as_bytes(admissions), ids}
remember(reply)
commit({urgent = urgent == '1'})
return reply
