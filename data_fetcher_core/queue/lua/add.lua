-- Takes requests in as far as the capacity goes. An addition that is whole enters entirely or not
-- at all; its checkpoint is saved in the same step. Refused entirely by a server out of memory.
-- INCLUDE: begin once counts lanes admit promote beat commit
-- REST: per addition: 1 if it is whole and 2 if the capacity does not bind it, number of
--   checkpoint pairs, number of requests, all these
-- RETURNS: one byte per request (Admission), then the ids that duplicates are known under

if answered then return answered end

local additions, names = {}, {}
for kind in take do
  local pair_count = take()
  local addition = take_addition(pair_count, take())
  addition.is_whole, addition.is_bound = kind == '1', kind ~= '2'
  table.insert(additions, addition)
  name_lanes(addition, names)
end
promote()
learn(names)

local outcomes, ids, was_full = {}, {}, false
for _, addition in ipairs(additions) do
  local places = addition.is_bound and capacity > 0 and capacity - size() or math.huge
  if addition.is_whole and fresh(addition.requests) > places then
    for _ in ipairs(addition.requests) do table.insert(outcomes, ADMISSION_FULL) end
  else
    admit(addition, places, outcomes, ids)
  end
end
place_touched()
for _, outcome in ipairs(outcomes) do was_full = was_full or outcome == ADMISSION_FULL end

-- Who may ask this again is not forgotten meanwhile, and with it that it was done.
beat()
local reply = {as_bytes(outcomes), ids}
remember(reply)
commit({was_full = was_full})
return reply
