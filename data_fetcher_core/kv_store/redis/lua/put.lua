-- Write a value and list its name. Both happen, or neither.
-- A value with a ttl vanishes by itself and leaves its name behind, so each write with a ttl also
-- looks at a few names at random and removes the dead: the index stays within a third of the
-- living, with nothing more to store.
--
-- KEYS  1 the value  2 the index of its prefix
-- ARGV  1 the name  2 the value  3 ttl in milliseconds, '' for none  4 what value keys begin with
-- Returns  1
local value_key, index = KEYS[1], KEYS[2]
local name, value, ttl, stem = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local SAMPLE = 4

local function wrong(key, expected)
  local kind = redis.call('TYPE', key).ok
  return kind ~= 'none' and kind ~= expected
end

if wrong(value_key, 'string') or wrong(index, 'zset') then
  return redis.error_reply('DFC_CORRUPT ' .. value_key .. ' or its index is not ours')
end

if ttl == '' then
  redis.call('SET', value_key, value)
else
  redis.call('SET', value_key, value, 'PX', ttl)
end
redis.call('ZADD', index, 0, name)

if ttl ~= '' then
  for _, other in ipairs(redis.call('ZRANDMEMBER', index, SAMPLE)) do
    if redis.call('EXISTS', stem .. other) == 0 then
      redis.call('ZREM', index, other)
    end
  end
end
return 1
