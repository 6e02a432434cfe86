-- Makes dead letters ready again, their attempts, deaths and expiry forgiven. What cannot be read
-- stays dead.
-- INCLUDE: begin once writes counts records lanes requests commit
-- KEYS: dead
-- REST: per letter: instant, number
-- RETURNS: how many were made ready

if answered then return answered end

local letters_at = {}
-- The letters of one instant by their numbers.
local function letters_of(at)
  if not letters_at[at] then
    letters_at[at] = {}
    for _, letter in ipairs(redis.call('ZRANGEBYSCORE', dead, at, at)) do
      letters_at[at][letter:sub(1, 8)] = letter
    end
  end
  return letters_at[at]
end

local letters, records, names = {}, {}, {}
for at in take do
  local key = struct.pack('>I8', take())
  local letter = letters_of(at)[key]
  letters_of(at)[key] = nil
  local record = letter and #letter >= 11 and read(letter:sub(12 + struct.unpack('>H', letter, 10)))
  if record then
    table.insert(letters, letter)
    table.insert(records, record)
    table.insert(names, lane_of(record))
  end
end
learn(names)

for _, record in ipairs(records) do
  local raw, lane = record.raw, known[lane_of(record)]
  if any_marked then unmark(id_of(record)) end
  make_ready(lane,
    raw:sub(1, 4) .. string.rep('\0', 4) .. raw:sub(9, 16) .. string.rep('\0', 8) .. raw:sub(25))
  place(lane)
end
remove('ZREM', dead, letters)
count('dead', -#letters)
count('requeued', #letters)
remember(#letters)
commit({urgent = true})
return #letters
