-- How many requests are where, and how many ever were: changed in the step that moves them.
-- INCLUDE: begin writes
-- KEYS: stats

local counted = {}
local function count(name, by)
  counted[name] = (counted[name] or 0) + by
end

local size_before
-- Ready and delayed requests, with what this step has done so far.
local function size()
  if not size_before then
    local found = redis.call('HMGET', stats, 'ready', 'delayed')
    size_before = (tonumber(found[1]) or 0) + (tonumber(found[2]) or 0)
  end
  return size_before + (counted.ready or 0) + (counted.delayed or 0)
end

local keyed_before
-- How many requests with a key have entered, this step's included.
local function keyed()
  keyed_before = keyed_before or tonumber(redis.call('HGET', stats, 'keyed')) or 0
  return keyed_before + (counted.keyed or 0)
end

-- Whether nothing waits and nothing is in flight any more.
local function is_drained()
  local leased_before = tonumber(redis.call('HGET', stats, 'leased')) or 0
  return size() == 0 and leased_before + (counted.leased or 0) == 0
end

-- Whether this step settled the last of it.
local function is_over()
  return (counted.leased or 0) < 0 and is_drained()
end

local function write_counts()
  for name, by in pairs(counted) do
    if by ~= 0 then
      check_number(redis.call('HGET', stats, name), 'the count of ' .. name)
      insert('HINCRBY', stats, {name, by})
    end
  end
end
