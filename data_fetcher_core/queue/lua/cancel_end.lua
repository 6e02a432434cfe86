-- Ends a cancellation: only requests that are leased now stay marked.
-- INCLUDE: once writes records cancel
-- KEYS: consumers cancelled
-- STEMS: leased_of
-- REST: ids
-- RETURNS: how many requests were waiting or are leased, then the keys to be forgotten

take_ids()

local held = {}
for _, client in ipairs(redis.call('HKEYS', consumers)) do
  for _, value in ipairs(redis.call('HVALS', leased_of .. client)) do
    local _, raw = split_lease(value)
    local record = read(raw)
    if is_wanted(record) then held[id_of(record)] = true end
  end
end

local free = {}
for id in pairs(wanted) do
  if held[id] then total = total + 1 else table.insert(free, id) end
end
remove('SREM', cancelled, free)
remember({total, keys})
write(true)
return {total, keys}
