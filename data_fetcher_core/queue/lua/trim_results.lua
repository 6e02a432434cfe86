-- Drops results up to a number; later ones keep theirs. Bounded.
-- INCLUDE: begin writes
-- KEYS: state results
-- ARGV: upto
-- RETURNS: 1 if there are more

local base = tonumber(redis.call('HGET', state, 'results_base')) or 0
local old = math.min(upto - base, redis.call('LLEN', results))
local gone = math.min(old, STEP)
if gone > 0 then
  insert('HSET', state, {'results_base', digits(base + gone)})
  remove('LTRIM', results, {gone, -1})
  write(true)
end
return gone < old and 1 or 0
