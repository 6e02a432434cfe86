-- Remove a value and its name.
--
-- KEYS  1 the value  2 the index of its prefix
-- ARGV  1 the name
-- Returns  1 if there was a value, else 0
local value_key, index = KEYS[1], KEYS[2]
local name = ARGV[1]

local kind = redis.call('TYPE', index).ok
if kind ~= 'none' and kind ~= 'zset' then
  return redis.error_reply('DFC_CORRUPT ' .. index .. ' is a ' .. kind .. ', not ours')
end

redis.call('ZREM', index, name)
return redis.call('DEL', value_key)
