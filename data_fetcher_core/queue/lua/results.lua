-- Shows results from behind a number on, up to the one with which the answer is as heavy as it may
-- be; changes nothing.
-- INCLUDE: begin
-- KEYS: state results
-- ARGV: after want
-- RETURNS: the number of the first, then the results

want = tonumber(want)

local base = tonumber(redis.call('HGET', state, 'results_base')) or 0
local from = math.max(after - base, 0)

-- They may be large: as many are read as were shown before, so that little is read in vain.
local shown, weight = {}, 0
while #shown < want and weight < STEP_BYTES do
  local asked = math.min(want - #shown, MOST_READ, math.max(#shown, 2))
  local page = redis.call('LRANGE', results, from + #shown, from + #shown + asked - 1)
  for _, result in ipairs(page) do
    if weight < STEP_BYTES then table.insert(shown, result) end
    weight = weight + #result
  end
  if #page < asked then break end
end
return {base + from + 1, shown}
