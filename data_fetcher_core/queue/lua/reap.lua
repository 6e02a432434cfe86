-- Takes what a dead client held, if its beat is still the given number: ready again and one death
-- older, or poisoned. Bounded; forgets the client with the last of it.
-- INCLUDE: begin records lanes requests held commit
-- KEYS: consumers
-- ARGV: client beat_seen
-- RETURNS: how many were taken, 1 if there are more

if redis.call('HGET', consumers, client) ~= beat_seen then return {0, 0} end

local done = take_back(leases_in_order(), function(lane, lease)
  if not lease.record then return bury_unreadable(lease.raw) end
  if is_dropped(lease.record, lease.token) then return end
  local deaths = math.min(lease.record.deaths + 1, 65535)
  local raw = lease.raw:sub(1, 6) .. struct.pack('>H', deaths) .. lease.raw:sub(9)
  if deaths >= max_deaths then
    bury(raw, REASON_POISONED, 'its process died each time it was being worked on')
  else
    make_ready(lane, raw)
  end
end)
commit({urgent = true})
return done
