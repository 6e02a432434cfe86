-- Ends a step that moves requests: reads what is left to check, then writes everything.
-- INCLUDE: begin writes counts lanes lists requests wake
-- KEYS: state

local number_before = number

local function commit(how)
  write_lists()
  write_requests()
  write_lanes()
  write_counts()
  wake_for_work(how.took)
  wake_for_room(how.was_full)
  if number ~= number_before then insert('HSET', state, {'number', digits(number)}) end
  write(how.urgent)
end
