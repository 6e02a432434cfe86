-- Gathers what a step will write, and writes it at its end: inserts first, removals last.
-- A script that fails half-way is not rolled back. So all is read and checked before the first
-- write, and should one fail after all, a request is in two places rather than in none.
-- KEYS: nothing

-- A number that cannot be counted on is told before anything is written.
local function check_number(value, what)
  if value and not tonumber(value) then error(what .. ' holds no number: ' .. value) end
end

local inserts, removals = {}, {}

local function insert(command, key, values)
  if #values > 0 then inserts[#inserts + 1] = {command, key, values} end
end

local function remove(command, key, values)
  if #values > 0 then removals[#removals + 1] = {command, key, values} end
end

local function drop(key)
  removals[#removals + 1] = {'UNLINK', key}
end

-- Lua unpacks only so many values at once.
local function send(command, key, values)
  if not values then return redis.call(command, key) end
  for first = 1, #values, STEP do
    redis.call(command, key, unpack(values, first, math.min(first + STEP - 1, #values)))
  end
end

-- A server out of memory refuses the first insert of a script, and with it the whole step. An
-- urgent step removes something first (a key that never exists); then no insert is refused.
local function write(urgent)
  if urgent then redis.call('DEL', nothing) end
  for _, one in ipairs(inserts) do send(unpack(one)) end
  for _, one in ipairs(removals) do send(unpack(one)) end
end
