-- Answers an operation that was sent again as it was answered the first time.
-- An operation too large for one step is sent in parts, numbered from 1; their outcomes are kept
-- until the client's next operation of the kind.
-- INCLUDE: writes
-- KEYS: ops
-- ARGV: slot op_number part

local past = redis.call('HGET', ops, slot)
past = past and cmsgpack.unpack(past)
if past and tonumber(op_number) < tonumber(past[1]) then
  return redis.error_reply('DFC_STALE a repeated operation arrived after a later one')
end
if not past or past[1] ~= op_number then past = {op_number} end
local answered = past[part + 1]

local function remember(outcome)
  for missing = #past + 1, part do past[missing] = false end
  past[part + 1] = outcome
  insert('HSET', ops, {slot, cmsgpack.pack(past)})
end
