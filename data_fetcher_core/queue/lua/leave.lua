-- Gives back what the client holds, nothing spent: to the front of its lists, as if never leased.
-- Bounded; forgets the client with the last of it.
-- INCLUDE: begin records lanes requests held commit
-- RETURNS: how many were given back, 1 if there are more

local leases = leases_in_order()
for at = 1, math.floor(#leases / 2) do
  leases[at], leases[#leases + 1 - at] = leases[#leases + 1 - at], leases[at]
end
local done = take_back(leases, function(lane, lease)
  if not lease.record then
    bury_unreadable(lease.raw)
  elseif not is_dropped(lease.record, lease.token) then
    put_in_front(lane, lease.raw)
  end
end)
commit({urgent = true})
return done
