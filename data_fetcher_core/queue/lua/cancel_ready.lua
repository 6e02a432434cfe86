-- Drops cancelled requests from ready lists, a bounded number of requests at a time. It goes from
-- the tail to the head and counts from the tail, so that what is leased from the head meanwhile,
-- or pushed at the tail, makes it see a request twice rather than not at all.
-- INCLUDE: writes records cancel lists lanes commit
-- KEYS: criticals
-- ARGV: priority offset walks_seen lane_count
-- REST: lanes, of which the first is begun at this priority and offset; then ids, then keys and
--   their hashes
-- RETURNS: lanes finished, then priority, offset and walks to go on with; then keys whose hashes
--   it lacks

local tombstone = '\0cancelled'
local names, hits = {}, {}
for at = 1, lane_count do names[at] = take() end
take_ids()
priority = tonumber(priority)
offset = walks == tonumber(walks_seen) and tonumber(offset) or 0

-- Look at a slice of one list; how many there were, and how many of them are marked.
local function look_at(key, most)
  local slice = redis.call('LRANGE', key, -offset - most, -offset - 1)
  local marked = {}
  for at, raw in ipairs(slice) do
    if is_wanted(read(raw)) then table.insert(marked, at - #slice - offset - 1) end
  end
  if #marked > 0 then table.insert(hits, {key = key, marked = marked}) end
  return #slice, #marked
end

local function ready_in(name)
  local length = 0
  for each = 1, CRITICAL do
    length = length + redis.call('LLEN', list_key(name, each))
  end
  return length
end

local budget, finished, all_dropped = STEP, 0, 0

local function walk_lane(name)
  local dropped = 0
  while priority <= CRITICAL and budget > 0 do
    local most = budget
    local seen, marked = look_at(list_key(name, priority), most)
    budget, dropped = budget - seen, dropped + marked
    offset = offset + seen - marked
    if seen < most then priority, offset = priority + 1, 0 end
  end
  if dropped > 0 then
    all_dropped = all_dropped + dropped
    learn({name})
    known[name].waits = ready_in(name) > dropped
    place(known[name])
    if not known[name].waits then remove('HDEL', criticals, {name}) end
  end
end

while finished < #names and budget > 0 do
  walk_lane(names[finished + 1])
  if priority > CRITICAL then finished, priority = finished + 1, 1 end
  budget = budget - 1
end

if #unhashed > 0 then return {0, priority, offset, walks, unhashed} end

for _, hit in ipairs(hits) do
  for _, index in ipairs(hit.marked) do insert('LSET', hit.key, {index, tombstone}) end
  remove('LREM', hit.key, {-#hit.marked, tombstone})
end
drop_waiting('ready', all_dropped)
commit({urgent = true})
return {finished, priority, offset, walks, {}}
