-- Shows results from behind a number on; changes nothing.
-- INCLUDE: begin
-- KEYS: state results
-- ARGV: after want
-- RETURNS: the number of the first, then the results

local base = tonumber(redis.call('HGET', state, 'results_base')) or 0
local from = math.max(after - base, 0)
return {base + from + 1, redis.call('LRANGE', results, from, from + want - 1)}
