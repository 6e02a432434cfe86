-- Counts again what is only derived from where requests are, and mends it. Reads everything.
-- INCLUDE: begin counts records lanes lists commit
-- KEYS: stats ring parked inflight delayed dead consumers
-- STEMS: leased_of
-- RETURNS: name, stored count and true count of what was wrong, in turn

local wrong = {}

local function compare(name, stored, true_count)
  if stored ~= true_count then
    for _, value in ipairs({name, stored, true_count}) do table.insert(wrong, value) end
  end
  return true_count - stored
end

local function ready_in(name)
  local length = 0
  for priority = 1, CRITICAL do
    length = length + redis.call('LLEN', list_key(name, priority))
  end
  return length
end

local function count_ready()
  local total, empty = 0, {}
  for _, zset in ipairs({ring, parked}) do
    for _, name in ipairs(redis.call('ZRANGE', zset, 0, -1)) do
      local length = ready_in(name)
      total = total + length
      if length == 0 then table.insert(empty, name) end
    end
  end
  learn(empty)
  for _, name in ipairs(empty) do
    known[name].waits = false
    touch(known[name])
  end
  return total
end

local flights, leases = {}, 0
for _, client in ipairs(redis.call('HKEYS', consumers)) do
  for _, value in ipairs(redis.call('HVALS', leased_of .. client)) do
    local name = split_lease(value)
    flights[name] = (flights[name] or 0) + 1
    leases = leases + 1
  end
end

local true_counts = {ready = count_ready(), delayed = redis.call('ZCARD', delayed),
  leased = leases, dead = redis.call('ZCARD', dead)}
for name, true_count in pairs(true_counts) do
  local stored_count = tonumber(redis.call('HGET', stats, name)) or 0
  count(name, compare(name, stored_count, true_count))
end

local in_flight, names = redis.call('HGETALL', inflight), {}
for at = 1, #in_flight, 2 do
  flights[in_flight[at]] = flights[in_flight[at]] or 0
end
for name in pairs(flights) do table.insert(names, name) end
learn(names)
for _, name in ipairs(names) do
  local lane = known[name]
  if compare('in_flight:' .. name, lane.in_flight, flights[name]) ~= 0 then
    lane.in_flight = flights[name]
    touch(lane)
  end
end
place_touched()
commit({urgent = true})
return wrong
