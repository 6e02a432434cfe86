-- Shows what would be leased next, as if every gate were open, up to the one with which the answer
-- is as heavy as it may be; changes nothing.
-- INCLUDE: begin lists
-- KEYS: ring parked criticals
-- ARGV: want
-- RETURNS: records

want = tonumber(want)

local lanes = {}
for _, zset in ipairs({ring, parked}) do
  local found = redis.call('ZRANGE', zset, 0, want - 1, 'WITHSCORES')
  for at = 1, #found, 2 do
    table.insert(lanes, {name = found[at], turn = tonumber(found[at + 1])})
  end
end
table.sort(lanes, function(one, other) return one.turn < other.turn end)
share = math.min(math.ceil(want / math.max(#lanes, 1)), MOST_READ) + 1

local ignored = 0
local function ignore()
  ignored = ignored + 1
  return ignored >= STEP
end

local shown, weight = {}, 0
local function wants_more()
  return #shown < want and weight < STEP_BYTES
end

-- One request of each lane; the lanes that gave one.
local function show_one_each()
  local giving = {}
  for _, lane in ipairs(lanes) do
    if not wants_more() then return {} end
    if not lane.lists then
      lane.criticals = tonumber(redis.call('HGET', criticals, lane.name)) or 0
      open_lists(lane)
    end
    local list = choose(lane, ignore)
    if list then
      table.insert(shown, list.record.raw)
      weight = weight + #list.record.raw
      lane.criticals = list.priority == CRITICAL and lane.criticals + 1 or 0
      pass(list)
      table.insert(giving, lane)
    end
  end
  return giving
end

while #lanes > 0 and wants_more() do lanes = show_one_each() end
return shown
