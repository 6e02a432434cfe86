-- Says that the client lives: a number that grows.
-- INCLUDE: writes
-- KEYS: consumers
-- ARGV: client

local function beat()
  check_number(redis.call('HGET', consumers, client), 'a beat')
  insert('HINCRBY', consumers, {client, 1})
end
