-- Shows saved checkpoints; changes nothing.
-- INCLUDE: begin
-- KEYS: checkpoints
-- REST: names
-- RETURNS: a value or nil for each

local found = {}
for name in take do table.insert(found, redis.call('HGET', checkpoints, name)) end
return found
