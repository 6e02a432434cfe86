-- Keeps account, over the steps of one cancellation, of how many waiting requests it has dropped
-- and of their keys, if those are to be forgotten: as the outcome of part 1. Part 2 is the whole's.
-- `walks` counts the removals that any cancellation made: who walks while it changes by another
-- hand starts over, because what it has not seen may have moved to where it has been.
-- INCLUDE: begin once writes counts records
-- KEYS: state cancelled
-- ARGV: forget

local walks = tonumber(redis.call('HGET', state, 'walks')) or 0
local total, keys = unpack(past[2] or {0, {}})

local function note_key(record)
  if forget == '1' and record.key_size > 0 then table.insert(keys, key_of(record)) end
end

-- Whether a waiting request is cancelled; if so, it is counted as dropped.
local function is_cancelled(record)
  if not record or redis.call('SISMEMBER', cancelled, id_of(record)) == 0 then return false end
  note_key(record)
  return true
end

local function drop_waiting(place, dropped)
  if dropped == 0 then return end
  walks = walks + 1
  count(place, -dropped)
  count('cancelled', dropped)
  insert('HSET', state, {'walks', digits(walks)})
  remember({total + dropped, keys})
end
