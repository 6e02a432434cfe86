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

local function set_pace(lane, change)
  lane.own = {tonumber(change.interval) or lane.own[1], tonumber(change.burst) or lane.own[2],
    tonumber(change.limit) or lane.own[3]}
  local limit = lane.own[3]
  lane.limit, lane.is_changed = limit < 0 and lane_concurrency or limit, true
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
  local interval, burst, limit = unpack(lane.own)
  if interval < 0 and burst < 0 and limit < 0 then
    remove('HDEL', paces, {lane.name})
  else
    insert('HSET', paces, {lane.name, struct.pack('>i8i8i8', interval, burst, limit)})
  end
end
remember(#changes)
commit({urgent = true})
return #changes
