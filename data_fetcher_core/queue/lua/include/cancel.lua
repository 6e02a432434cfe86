-- Keeps account, over the steps of one cancellation, of how many waiting requests it has dropped:
-- as the outcome of part 1. Part 2 is the whole's; a step of part 1 that comes after it is too late.
-- `walks` counts the removals that any cancellation made: who walks while it changes by another
-- hand starts over, because what it has not seen may have moved to where it has been.
-- A key is forgotten in the step that cancels its request. Its hash cannot be made here: a step
-- that lacks one asks for it, and changes nothing.
-- INCLUDE: begin once writes counts records seen
-- KEYS: state
-- ARGV: forget id_count part
-- REST: ids (id_count of them), then keys and their hashes, in turn

if part == '1' and past[3] then
  return redis.error_reply('DFC_STALE a step of a cancellation came after its end')
end

local walks = tonumber(redis.call('HGET', state, 'walks')) or 0
local total = past[2] or 0

local ids, wanted, hashes, unhashed = {}, {}, {}, {}
local function take_ids()
  for at = 1, id_count do
    ids[at] = take()
    wanted[ids[at]] = true
  end
  for key in take do hashes[key] = take() end
end

local function forget_key(key)
  local hash = hashes[key]
  if not hash then return table.insert(unhashed, key) end
  local bucket, field = bucket_of(hash), field_of(hash)
  if redis.call('HEXISTS', bucket, field) == 1 then remove('HDEL', bucket, {field}) end
end

-- Whether a request is one of those to be cancelled; if so, its key is forgotten with it.
local function is_wanted(record)
  if not record or not wanted[id_of(record)] then return false end
  if forget == '1' and record.key_size > 0 then forget_key(key_of(record)) end
  return true
end

local function drop_waiting(place, dropped)
  if dropped == 0 then return end
  walks = walks + 1
  count(place, -dropped)
  count('cancelled', dropped)
  insert('HSET', state, {'walks', digits(walks)})
  remember(total + dropped)
end
