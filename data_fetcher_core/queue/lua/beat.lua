-- Says that the client lives.
-- INCLUDE: begin writes beat
-- KEYS: leased consumers
-- RETURNS: how many leases it holds, then every consumer and its beat

local held = redis.call('HLEN', leased)
beat()
write(true)
return {held, redis.call('HGETALL', consumers)}
