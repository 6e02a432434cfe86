-- Says how many requests are where; changes nothing.
-- INCLUDE: begin
-- KEYS: stats ring parked
-- RETURNS: the number of lanes with something ready, then names and counts

return {redis.call('ZCARD', ring) + redis.call('ZCARD', parked), redis.call('HGETALL', stats)}
