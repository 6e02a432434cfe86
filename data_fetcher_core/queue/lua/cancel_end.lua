-- Ends a cancellation: requests that are leased now are marked by the tokens of their leases, and
-- none by its id any more, so that what enters under one of these from now on is left alone.
-- INCLUDE: once writes records cancel
-- KEYS: consumers cancelled
-- STEMS: leased_of
-- REST: ids, then keys and their hashes
-- RETURNS: how many requests were waiting or are leased, then keys whose hashes it lacks

if answered then return {answered, {}} end

take_ids()

local tokens = {}
for _, client in ipairs(redis.call('HKEYS', consumers)) do
  local leases = redis.call('HGETALL', leased_of .. client)
  for at = 1, #leases, 2 do
    local _, raw = split_lease(leases[at + 1])
    if is_wanted(read(raw)) then table.insert(tokens, leases[at]) end
  end
end
if #unhashed > 0 then return {0, unhashed} end

total = total + #tokens
insert('SADD', cancelled, tokens)
remove('SREM', cancelled, ids)
remember(total)
write(true)
return {total, {}}
