-- Knows the time, the run's options and its counter. Refuses a store that holds another run.
-- KEYS: state
-- ARGV: generation instant

local stored = redis.call('HMGET', state, 'generation', 'number', 'option:capacity',
  'option:max_deaths', 'option:ageing_step', 'option:critical_burst', 'option:lane_interval',
  'option:lane_burst', 'option:lane_concurrency', 'option:max_keyed')
if stored[1] ~= generation then
  local ended = ' ' .. (redis.call('HGET', state, 'ended') or '') .. ' '
  if ended:find(' ' .. generation .. ' ', 1, true) then
    return redis.error_reply('DFC_FORGOTTEN this run was forgotten and begun anew')
  end
  return redis.error_reply(
    'DFC_LOST the store no longer holds this run: it was emptied, or replaced by another')
end

-- Numbers given to redis.call keep all their digits; as text they would keep 14.
local function digits(number)
  return string.format('%.0f', number)
end

local now = tonumber(instant)
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local number = tonumber(stored[2]) or 0
local function next_number()
  number = number + 1
  return number
end

local capacity = tonumber(stored[3]) or UNSET_CAPACITY
local max_deaths = tonumber(stored[4]) or UNSET_MAX_DEATHS
local ageing_step = tonumber(stored[5]) or UNSET_AGEING_STEP
local critical_burst = tonumber(stored[6]) or UNSET_CRITICAL_BURST
local lane_interval = tonumber(stored[7]) or UNSET_LANE_INTERVAL
local lane_burst = tonumber(stored[8]) or UNSET_LANE_BURST
local lane_concurrency = tonumber(stored[9]) or UNSET_LANE_CONCURRENCY
local max_keyed = tonumber(stored[10]) or UNSET_MAX_KEYED
