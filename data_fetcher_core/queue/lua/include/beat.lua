-- Says that the client lives: a number that grows. It begins at the store's instant, so that a
-- consumer that was reaped and returns never has a number again that somebody may have judged.
-- INCLUDE: begin writes
-- KEYS: consumers
-- ARGV: client

local function beat()
  local last = redis.call('HGET', consumers, client)
  check_number(last, 'a beat')
  if last then
    insert('HINCRBY', consumers, {client, 1})
  else
    insert('HSET', consumers, {client, digits(now)})
  end
end
