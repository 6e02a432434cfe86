-- The living values with names in a range, in the order of the names' bytes. Names whose value
-- has expired are removed on the way and do not count. One call looks at no more than 1,000
-- names; where more remain it says where to go on.
--
-- KEYS  1 the index of the prefix
-- ARGV  1 first name, as ZRANGEBYLEX takes it  2 last name, likewise  3 most pairs wanted
--       4 what value keys begin with
-- Returns  { where to go on or '', name, value, name, value, ... }
local index = KEYS[1]
local first, last, wanted, stem = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local found, budget = { '' }, 1000

local function read(names)
  local keys = {}
  for i, name in ipairs(names) do
    keys[i] = stem .. name
  end
  return redis.call('MGET', unpack(keys))
end

while wanted > 0 do
  local size = math.min(wanted, budget)
  if size == 0 then
    found[1] = first
    break
  end
  local names = redis.call('ZRANGEBYLEX', index, first, last, 'LIMIT', 0, size)
  if #names == 0 then
    break
  end
  for i, value in ipairs(read(names)) do
    if value then
      found[#found + 1] = names[i]
      found[#found + 1] = value
      wanted = wanted - 1
    elseif redis.call('EXISTS', stem .. names[i]) == 1 then
      return redis.error_reply('DFC_CORRUPT ' .. stem .. names[i] .. ' is not ours')
    else
      redis.call('ZREM', index, names[i])
    end
  end
  first = '(' .. names[#names]
  budget = budget - #names
end
return found
