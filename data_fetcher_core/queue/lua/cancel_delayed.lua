-- Drops cancelled requests from the delayed ones, a bounded number at a time, the latest first:
-- what becomes due meanwhile goes from the other end, and what is added makes it see some twice.
-- INCLUDE: writes counts records cancel wake
-- KEYS: delayed
-- ARGV: offset walks_seen
-- REST: ids, then keys and their hashes
-- RETURNS: offset and walks to go on with, offset -1 at the end; then keys whose hashes it lacks

take_ids()
offset = walks == tonumber(walks_seen) and tonumber(offset) or 0

local slice = redis.call('ZREVRANGE', delayed, offset, offset + STEP - 1)
local marked = {}
for _, member in ipairs(slice) do
  if is_wanted(read(member:sub(9))) then table.insert(marked, member) end
end
if #unhashed > 0 then return {offset, walks, unhashed} end
remove('ZREM', delayed, marked)
drop_waiting('delayed', #marked)
write_counts()
wake_for_room()
write(true)
return {#slice < STEP and -1 or offset + #slice - #marked, walks, {}}
