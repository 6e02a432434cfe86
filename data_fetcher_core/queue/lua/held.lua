-- Says what the client holds; changes nothing.
-- INCLUDE: begin
-- KEYS: leased
-- RETURNS: the tokens

return redis.call('HKEYS', leased)
