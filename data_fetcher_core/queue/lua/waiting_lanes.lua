-- Shows lanes with something ready, in the order of their turns; changes nothing. A lane that gets
-- a new turn meanwhile comes later, never earlier: going on from the last turn misses none.
-- INCLUDE: begin
-- KEYS: ring parked
-- ARGV: after
-- RETURNS: turn and lane, in turn; a step's worth if there may be more

local lanes = {}
for _, zset in ipairs({ring, parked}) do
  local found = redis.call(
    'ZRANGEBYSCORE', zset, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, STEP)
  for at = 1, #found, 2 do table.insert(lanes, {found[at + 1], found[at]}) end
end
table.sort(lanes, function(one, other) return tonumber(one[1]) < tonumber(other[1]) end)

local shown = {}
for at = 1, math.min(#lanes, STEP) do
  table.insert(shown, lanes[at][1])
  table.insert(shown, lanes[at][2])
end
return shown
