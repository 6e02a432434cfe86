-- Takes back all that a client holds, a bounded number at a time, and forgets it once that is all.
-- INCLUDE: begin writes counts records lanes
-- KEYS: leased consumers ops
-- ARGV: client
-- REST: the slots of the client's operations

-- Bytes, not what the server's locale makes of them.
local function is_before(left, right)
  for at = 1, math.min(#left, #right) do
    local a, b = left:byte(at), right:byte(at)
    if a ~= b then return a < b end
  end
  return #left < #right
end

-- The client's leases in the order of its leasing, which is that of their tokens.
local function leases_in_order()
  local stored, leases, names = redis.call('HGETALL', leased), {}, {}
  for at = 1, #stored, 2 do
    local name, raw = split_lease(stored[at + 1])
    table.insert(names, name)
    table.insert(leases, {token = stored[at], lane = name, raw = raw, record = read(raw)})
  end
  learn(names)
  table.sort(leases, function(one, other) return is_before(one.token, other.token) end)
  return leases
end

-- Let go of up to a step's worth of leases, each by `let_go(lane, lease)`.
local function take_back(leases, let_go)
  local tokens = {}
  for at = 1, math.min(#leases, STEP) do
    local lease = leases[at]
    local lane = known[lease.lane]
    tokens[at] = lease.token
    land(lane)
    let_go(lane, lease)
    place(lane)
  end
  count('leased', -#tokens)
  remove('HDEL', leased, tokens)
  if #tokens == #leases then
    local slots = {}
    for slot in take do table.insert(slots, slot) end
    remove('HDEL', ops, slots)
    remove('HDEL', consumers, {client})
  end
  return {#tokens, #tokens < #leases and 1 or 0}
end
