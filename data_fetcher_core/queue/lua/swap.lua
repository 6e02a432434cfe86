-- Saves a checkpoint if the one before is as expected; empty stands for none. Sent again after it
-- was done, it says so again.
-- INCLUDE: begin writes
-- KEYS: checkpoints
-- ARGV: name expected value
-- RETURNS: 1 if it holds the value now

local saved = redis.call('HGET', checkpoints, name) or ''
if saved ~= expected then return saved == value and 1 or 0 end
if value == '' then
  remove('HDEL', checkpoints, {name})
else
  insert('HSET', checkpoints, {name, value})
end
write(false)
return 1
