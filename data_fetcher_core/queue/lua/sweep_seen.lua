-- Frees the buckets of seen keys that nobody looks into any more. Bounded.
-- INCLUDE: begin writes
-- KEYS: state
-- STEMS: seen_of
-- RETURNS: 1 if there are more

local found = redis.call('HMGET', state, 'seen_swept', 'seen_base')
local first, last = tonumber(found[1]), tonumber(found[2])
local upto = math.min(first + STEP, last)
for bucket = first, upto - 1 do drop(seen_of .. digits(bucket)) end
insert('HSET', state, {'seen_swept', digits(upto)})
write(true)
return upto < last and 1 or 0
