-- The ready lists of lanes, one per priority. A step pushes to both ends and takes from the front;
-- until it ends, what it pushed at the tail counts as lying behind what is stored.
-- INCLUDE: begin writes counts records lanes
-- KEYS: state
-- STEMS: ready_of

-- Only lists of priorities that were ever used are looked at.
local used, used_before = {}, redis.call('HGET', state, 'used') or ''
for digit in used_before:gmatch('.') do used[tonumber(digit)] = true end

local tails, fronts = {}, {}

local function list_key(name, priority)
  return ready_of .. priority .. ':' .. name
end

local function push(ends, lane, priority, raw)
  local pushed = ends[lane]
  if not pushed then
    pushed = {}
    ends[lane] = pushed
  end
  if not pushed[priority] then
    pushed[priority] = {}
    used[priority] = true
  end
  pushed = pushed[priority]
  pushed[#pushed + 1] = raw
  lane.waits, lane.gained = true, true
  count('ready', 1)
end

-- How many to read at once, at most, from a list whose front was used up.
local share = 2

local function open_lists(lane)
  lane.lists = {}
  for priority = 1, CRITICAL do
    if used[priority] then
      table.insert(lane.lists, {priority = priority, key = list_key(lane.name, priority),
        pushed = tails[lane] and tails[lane][priority], page = {}, at = 0, read = 0, taken = 0,
        first = {}})
    end
  end
end

-- They may be large: as many are read as were taken before, so that little is read in vain.
local function read_on(list)
  local asked = math.min(share, math.max(list.taken, 2))
  list.page = redis.call('LRANGE', list.key, list.read, list.read + asked - 1)
  list.at, list.read = 0, list.read + #list.page
  if #list.page < asked then
    list.is_read = true
    for _, raw in ipairs(list.pushed or {}) do table.insert(list.page, raw) end
  end
end

local function look(list)
  if list.at == #list.page and not list.is_read then read_on(list) end
  local raw = list.page[list.at + 1]
  list.record = raw and read_into(list.first, raw)
  if list.record then list.rank = list.record.ready_at - list.priority * ageing_step end
  return raw
end

local function pass(list)
  list.at, list.taken, list.record = list.at + 1, list.taken + 1, nil
end

local function is_sooner(list, other)
  if list.rank ~= other.rank then return list.rank < other.rank end
  if list.record.ready_at ~= other.record.ready_at then
    return list.record.ready_at < other.record.ready_at
  end
  return list.priority > other.priority
end

-- The list whose first request comes next, nil if none is left. CRITICAL comes first, unless its
-- burst is used up and another one waits. What cannot be read is given away and passed; once that
-- says it was enough, nothing is chosen, and the second answer is true.
local function choose(lane, give_away)
  local critical, best
  for _, list in ipairs(lane.lists) do
    while not list.record do
      local raw = look(list)
      if list.record or not raw then break end
      pass(list)
      if give_away(raw) then return nil, true end
    end
    if list.record and list.priority == CRITICAL then
      critical = list
    elseif list.record and (not best or is_sooner(list, best)) then
      best = list
    end
  end
  local burst_over = critical_burst > 0 and lane.criticals >= critical_burst
  return critical and not (best and burst_over) and critical or best
end

local function write_pushes(ends, command)
  for lane, by_priority in pairs(ends) do
    for priority, raws in pairs(by_priority) do
      local key = list_key(lane.name, priority)
      -- A list that is only pushed to was not read: asking its length refuses one that is none.
      redis.call('LLEN', key)
      insert(command, key, raws)
    end
  end
end

local function write_lists()
  write_pushes(tails, 'RPUSH')
  write_pushes(fronts, 'LPUSH')
  for _, lane in ipairs(all_known) do
    for _, list in ipairs(lane.lists or {}) do
      if list.taken > 0 then remove('LTRIM', list.key, {list.taken, -1}) end
    end
  end
  local used_now = ''
  for priority = 1, CRITICAL do
    if used[priority] then used_now = used_now .. priority end
  end
  if used_now ~= used_before then insert('HSET', state, {'used', used_now}) end
end
