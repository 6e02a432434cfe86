-- Settles leases of the client, each for itself, with all it brings: children, checkpoint, result.
-- A token that the client does not hold changes nothing.
-- INCLUDE: begin once writes counts records lanes lists requests admit beat commit
-- KEYS: leased consumers results
-- ARGV: urgent client
-- REST: per settlement: packed move, then its checkpoint pairs, then its children
-- RETURNS: one byte per settlement (Outcome), one per child (Admission), then ids of duplicates

if answered then return answered end

local settlements, tokens = {}, {}
for packed in take do
  local move, reason, delay, token_size, head_size, detail_size, result_size, pair_count,
    child_count, at = struct.unpack('>BBI8BI4HI4I4I4', packed)
  local head_at = at + token_size
  local detail_at = head_at + head_size
  local result_at = detail_at + detail_size
  local token = packed:sub(at, head_at - 1)
  tokens[#tokens + 1] = token
  settlements[#tokens] = {move = move, reason = reason, delay = delay, token = token,
    head = packed:sub(head_at, detail_at - 1), detail = packed:sub(detail_at, result_at - 1),
    result = result_size > 0 and packed:sub(result_at),
    addition = take_addition(pair_count, child_count)}
end

if redis.call('HEXISTS', consumers, client) == 0 then
  return {string.rep(string.char(OUTCOME_LOST), #settlements), '', {}}
end

local held, names = {}, {}
for at, value in ipairs(redis.call('HMGET', leased, unpack(tokens))) do
  if value then
    local start = record_start(value)
    local lane = value:sub(3, start - 1)
    held[tokens[at]] = {lane = lane, value = value, start = start}
    names[#names + 1] = lane
    name_lanes(settlements[at].addition, names)
  end
end
learn(names)

local results_added, settled_tokens = {}, {}

-- What most settlements, completing what nobody cancelled, have no need to look at.
local function look_into(lease)
  lease.raw = lease.value:sub(lease.start)
  lease.record = read(lease.raw)
end

local function finish(settlement, lease)
  if any_marked then look_into(lease) end
  if lease.record then take_mark(lease.record, settlement.token) end
  if settlement.result then table.insert(results_added, settlement.result) end
  count(settlement.move == MOVE_COMPLETE and 'completed' or 'cancelled', 1)
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
  settled_tokens[#settled_tokens + 1] = settlement.token
  if settlement.move == MOVE_COMPLETE or settlement.move == MOVE_DROP then
    finish(settlement, lease)
    return OUTCOME_DONE
  end
  look_into(lease)
  if lease.record and is_dropped(lease.record, settlement.token) then return OUTCOME_CANCELLED end
  move_on(settlement, lane, lease)
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
