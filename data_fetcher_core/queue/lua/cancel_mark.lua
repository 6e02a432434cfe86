-- Marks requests, so that they are dropped at whatever move they make next.
-- INCLUDE: begin once writes
-- KEYS: cancelled
-- CHECKS: stats ring parked gates inflight paces criticals delayed dead consumers wake watched room
-- REST: ids
-- RETURNS: what the whole cancellation answered if it was already done, else -1

if answered then return answered end

local ids = {}
for id in take do table.insert(ids, id) end
insert('SADD', cancelled, ids)
write(true)
return -1
