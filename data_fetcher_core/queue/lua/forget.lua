-- Drops the whole run, a bounded part at a time. The last part leaves a new, empty run, so that who
-- holds a lease of the old one learns that it is lost.
-- INCLUDE: layout writes
-- KEYS: state stats ring parked gates arrivals paces criticals inflight delayed dead consumers
-- KEYS: cancelled checkpoints results ops wake watched room
-- STEMS: ready_of seen_of leased_of wake_of
-- ARGV: generation new_generation remembered
-- RETURNS: 1 if there is more

-- If it was forgotten before, what is here now is another run. From the first part on the run is
-- one that is being forgotten, so that whoever opens it can finish what was interrupted.
local stored = redis.call('HMGET', state, 'generation', 'ended')
local ended = stored[2] or ''
if stored[1] ~= generation and stored[1] ~= tostring(FORGETTING) then return 0 end

-- Generations that were forgotten, the last one first: who knows one of them has not lost it.
local function with_this_one()
  local names = {}
  for name in (generation .. ' ' .. ended):gmatch('%S+') do
    if #names < tonumber(remembered) then table.insert(names, name) end
  end
  return table.concat(names, ' ')
end

if stored[1] == generation then ended = with_this_one() end
insert('HSET', state, {'generation', FORGETTING, 'ended', ended})

local function drop_lanes(zset)
  local names = redis.call('ZRANGE', zset, 0, STEP - 1)
  for _, name in ipairs(names) do
    for priority = 1, CRITICAL do drop(ready_of .. priority .. ':' .. name) end
  end
  remove('ZREM', zset, names)
  return #names == STEP
end

local function drop_leases()
  local clients = redis.call('HKEYS', consumers)
  for _, client in ipairs(clients) do drop(leased_of .. client) end
  remove('HDEL', consumers, clients)
end

local function drop_seen()
  local found = redis.call('HMGET', state, 'seen_swept', 'seen_base', 'buckets')
  local first = tonumber(found[1]) or 0
  local last = (tonumber(found[2]) or 0) + (tonumber(found[3]) or 0)
  local upto = math.min(first + STEP, last)
  for bucket = first, upto - 1 do drop(seen_of .. string.format('%.0f', bucket)) end
  insert('HSET', state, {'seen_swept', string.format('%.0f', upto)})
  return upto < last
end

local function drop_wakes()
  local names = redis.call('SRANDMEMBER', watched, STEP)
  for _, name in ipairs(names) do drop(wake_of .. name) end
  remove('SREM', watched, names)
  return #names == STEP
end

local more_ring, more_parked = drop_lanes(ring), drop_lanes(parked)
local more_seen, more_wakes = drop_seen(), drop_wakes()
drop_leases()
write(true)
if more_ring or more_parked or more_seen or more_wakes then return 1 end

redis.call('UNLINK', stats, ring, parked, gates, arrivals, paces, criticals, inflight, delayed,
  dead, consumers, cancelled, checkpoints, results, ops, wake, watched, room, state)
redis.call('HSET', state, 'layout', LAYOUT, 'generation', new_generation, 'ended', ended)
return 0
