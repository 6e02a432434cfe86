-- What time brings: first the gates that have opened, then the requests that are due.
-- Bounded: may_be_due tells that there may be more of either.
-- INCLUDE: begin writes counts records lanes lists requests
-- KEYS: gates delayed

local may_be_due, promoted = false, 0

local function open_gates()
  local names = redis.call('ZRANGEBYSCORE', gates, '-inf', now, 'LIMIT', 0, STEP)
  learn(names)
  for _, name in ipairs(names) do
    known[name].gate = 0
    place(known[name])
  end
  return #names == STEP
end

local function make_due_ready()
  local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, STEP)
  local records, names = {}, {}
  for at, member in ipairs(due) do
    records[at] = read(member:sub(9)) or false
    if records[at] then names[#names + 1] = lane_of(records[at]) end
  end
  learn(names)
  for at, record in ipairs(records) do
    if not record then
      bury_unreadable(due[at]:sub(9))
    elseif not is_dropped(record) then
      local lane = known[lane_of(record)]
      make_ready(lane, record.raw)
      place(lane)
    end
  end
  promoted = #due
  count('delayed', -promoted)
  -- The first ones: whatever this step adds is due later.
  if promoted > 0 then remove('ZREMRANGEBYRANK', delayed, {0, promoted - 1}) end
  return promoted == STEP
end

local function promote()
  local more_gates, more_due = open_gates(), make_due_ready()
  may_be_due = more_gates or more_due
end
