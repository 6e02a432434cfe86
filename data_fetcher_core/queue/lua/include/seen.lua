-- Where the hash of a key is remembered: one of a fixed number of buckets, in 14 of its 16 bytes.
-- INCLUDE: begin
-- KEYS: state
-- STEMS: seen_of

local seen_state = redis.call('HMGET', state, 'seen_base', 'buckets')
local seen_base, buckets = tonumber(seen_state[1]), tonumber(seen_state[2])

local function bucket_of(hash)
  return seen_of .. digits(seen_base + struct.unpack('>I4', hash) % buckets)
end

local function field_of(hash)
  return hash:sub(3)
end
