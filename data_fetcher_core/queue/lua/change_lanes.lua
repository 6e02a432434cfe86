-- Moves gates, sets intervals and limits. A gate holds whether or not its lane has anything.
-- INCLUDE: begin once writes lanes lists requests commit
-- KEYS: paces arrivals
-- REST: per change: lane, shut, reopen, interval, burst, limit; empty for what stays as it is
-- RETURNS: how many lanes were changed

if answered then return answered end

local changes, names = {}, {}
for name in take do
  table.insert(names, name)
  table.insert(changes, {lane = name, shut = take(), reopen = take(), interval = take(),
    burst = take(), limit = take()})
end
learn(names)

-- What is stored of each lane: interval, burst and limit, below zero for the default.
local own = {}
for at, pace in ipairs(#names > 0 and redis.call('HMGET', paces, unpack(names)) or {}) do
  own[names[at]] = pace and {struct.unpack('>i8i8i8', pace)} or {-1, -1, -1}
end

local function set_pace(lane, change)
  local interval, burst, limit = unpack(own[lane.name])
  interval = tonumber(change.interval) or interval
  burst = tonumber(change.burst) or burst
  limit = tonumber(change.limit) or limit
  own[lane.name] = {interval, burst, limit}
  lane.limit = limit < 0 and lane_concurrency or limit
end

for _, change in ipairs(changes) do
  local lane = known[change.lane]
  if change.reopen == '1' then
    lane.gate = 0
    remove('ZREM', arrivals, {lane.name})
  end
  if change.shut ~= '' then lane.gate = math.max(lane.gate, now + change.shut) end
  set_pace(lane, change)
  place(lane)
end

for _, lane in ipairs(all_known) do
  local interval, burst, limit = unpack(own[lane.name])
  if interval < 0 and burst < 0 and limit < 0 then
    remove('HDEL', paces, {lane.name})
  else
    insert('HSET', paces, {lane.name, struct.pack('>i8i8i8', interval, burst, limit)})
  end
end
remember(#changes)
commit({urgent = true})
return #changes
