-- Shows dead letters, oldest first, from behind a position on, up to the one with which the answer
-- is as heavy as it may be; changes nothing.
-- INCLUDE: begin
-- KEYS: dead
-- ARGV: after_at after_number want
-- RETURNS: instant and letter, in turn

want, after_number = tonumber(want), tonumber(after_number)

local function number_of(rank)
  local letter = redis.call('ZRANGE', dead, rank, rank)[1]
  return (struct.unpack('>I8', letter:sub(1, 8) .. string.rep('\0', 8)))
end

-- Several may have been buried at one instant: they lie in the order of their numbers, and those
-- up to the given one are found by halving, for to read them all may take long.
local first = redis.call('ZCOUNT', dead, '-inf', '(' .. after_at)
local last = first + redis.call('ZCOUNT', dead, after_at, after_at)
while first < last do
  local middle = math.floor((first + last) / 2)
  if number_of(middle) > after_number then last = middle else first = middle + 1 end
end

-- They may be large: as many are read as were shown before, so that little is read in vain.
local shown, count, weight = {}, 0, 0
while count < want and weight < STEP_BYTES do
  local asked = math.min(want - count, MOST_READ, math.max(count, 2))
  local page = redis.call('ZRANGE', dead, first + count, first + count + asked - 1, 'WITHSCORES')
  for at = 1, #page, 2 do
    if weight < STEP_BYTES then
      table.insert(shown, page[at + 1])
      table.insert(shown, page[at])
      count = count + 1
    end
    weight = weight + #page[at]
  end
  if #page < 2 * asked then break end
end
return shown
