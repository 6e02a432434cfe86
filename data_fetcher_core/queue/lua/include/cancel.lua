-- Keeps account, over the steps of one cancellation, of how many waiting requests it has dropped
-- and of their keys, if those are to be forgotten: as the outcome of part 1. Part 2 is the whole's.
-- `walks` counts the removals that any cancellation made: who walks while it changes by another
-- hand starts over, because what it has not seen may have moved to where it has been.
-- INCLUDE: begin once writes counts records
-- KEYS: state
-- ARGV: forget
-- REST: ids

local walks = tonumber(redis.call('HGET', state, 'walks')) or 0
local total, keys = unpack(past[2] or {0, {}})

local wanted = {}
local function take_ids()
  for id in take do wanted[id] = true end
end

-- Whether a request is one of those to be cancelled; if so, its key is noted.
local function is_wanted(record)
  if not record or not wanted[id_of(record)] then return false end
  if forget == '1' and record.key_size > 0 then table.insert(keys, key_of(record)) end
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
