-- Refuses a run that another version wrote in another way.
-- KEYS: state

local layout = redis.call('HGET', state, 'layout')
if layout and layout ~= tostring(LAYOUT) then
  return redis.error_reply('DFC_LAYOUT this run was written with layout ' .. layout
    .. ', and this version reads layout ' .. LAYOUT
    .. ': go on with the version that began it, or begin a new run')
end
