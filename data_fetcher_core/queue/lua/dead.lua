-- Shows dead letters, oldest first, from behind a position on; changes nothing.
-- INCLUDE: begin
-- KEYS: dead
-- ARGV: after_at after_number want
-- RETURNS: instant and letter, in turn

want, after_at, after_number = tonumber(want), tonumber(after_at), tonumber(after_number)

-- Several may have been buried at one instant: those up to the given number are skipped.
local function is_behind(letter, at)
  local number = struct.unpack('>I8', letter .. string.rep('\0', 8))
  return tonumber(at) ~= after_at or number > after_number
end

local shown, offset = {}, 0
while #shown < 2 * want do
  local page = redis.call(
    'ZRANGEBYSCORE', dead, after_at, '+inf', 'WITHSCORES', 'LIMIT', offset, STEP)
  for at = 1, #page, 2 do
    if #shown < 2 * want and is_behind(page[at], page[at + 1]) then
      table.insert(shown, page[at + 1])
      table.insert(shown, page[at])
    end
  end
  if #page < 2 * STEP then break end
  offset = offset + STEP
end
return shown
