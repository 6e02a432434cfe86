-- Drops ready and delayed requests, a bounded number of lanes at a time, and with the last of them
-- forgets all seen keys. Leases go on.
-- INCLUDE: begin once writes counts lists wake
-- KEYS: state ring parked criticals delayed wake
-- RETURNS: how many requests went, 1 if there are more, 1 if buckets of seen keys are to be swept

if answered then return answered end

local gone = redis.call('ZCARD', delayed)
count('delayed', -gone)
drop(delayed)

local function drop_lists(name)
  for priority = 1, CRITICAL do
    local key = list_key(name, priority)
    local length = redis.call('LLEN', key)
    if length > 0 then
      gone = gone + length
      count('ready', -length)
      drop(key)
    end
  end
end

local function drop_lanes(zset, most)
  local names = redis.call('ZRANGE', zset, 0, most - 1)
  for _, name in ipairs(names) do drop_lists(name) end
  remove('ZREM', zset, names)
  return #names
end

local budget = STEP
budget = budget - drop_lanes(ring, budget)
if budget > 0 then budget = budget - drop_lanes(parked, budget) end
local more = redis.call('ZCARD', ring) + redis.call('ZCARD', parked) > STEP - budget

if not more then
  -- The old buckets are swept later; from now on nobody looks into them.
  local found = redis.call('HMGET', state, 'seen_base', 'buckets')
  insert('HSET', state, {'seen_base', digits(found[1] + found[2])})
  drop(criticals)
  silence(wake)
end
count('cleared', gone)
write_counts()
wake_for_room()
local done = {gone, more and 1 or 0, more and 0 or 1}
remember(done)
write(true)
return done
