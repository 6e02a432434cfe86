-- Drops dead letters that were buried at least so long ago. Bounded.
-- INCLUDE: begin once writes counts
-- KEYS: dead
-- ARGV: older_than
-- RETURNS: how many were dropped, 1 if there are more

if answered then return answered end

local found = redis.call('ZCOUNT', dead, '-inf', now - older_than)
local gone = math.min(found, STEP)
if gone > 0 then remove('ZREMRANGEBYRANK', dead, {0, gone - 1}) end
count('dead', -gone)
count('purged', gone)
local done = {gone, found > gone and 1 or 0}
remember(done)
write_counts()
write(true)
return done
