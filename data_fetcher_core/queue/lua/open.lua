-- Makes the run if there is none, and stores the options that are not stored yet or are forced.
-- Writes nothing where nothing is missing, so that a run in a full server can be opened.
-- INCLUDE: layout
-- KEYS: state
-- ARGV: new_generation
-- REST: per option: name, value, 1 to store it in any case
-- RETURNS: the generation, then all options and their values; nothing is stored in a run that is
--   being forgotten

local missing, options = {}, {}

local function store(field, value)
  table.insert(missing, field)
  table.insert(missing, value)
end

local generation, buckets
local stored = redis.call('HGETALL', state)
for at = 1, #stored, 2 do
  local field, value = stored[at], stored[at + 1]
  local name = field:match('^option:(.*)$')
  if name then options[name] = value end
  if field == 'generation' then generation = value end
  if field == 'buckets' then buckets = value end
end

if generation == tostring(FORGETTING) then return {generation, {}} end

for name in take do
  local value, is_forced = take(), take() == '1'
  if not options[name] or (is_forced and options[name] ~= value) then
    options[name] = value
    store('option:' .. name, value)
  end
end

if not buckets then
  -- Redis keeps up to 512 fields in a compact form; a bucket gets half of that.
  buckets = 1
  local expected_keys = tonumber(options.expected_keys) or UNSET_EXPECTED_KEYS
  while buckets * 256 < expected_keys do buckets = buckets * 2 end
  store('buckets', buckets)
  store('seen_base', 0)
  store('seen_swept', 0)
end
if not generation then
  generation = new_generation
  store('layout', LAYOUT)
  store('generation', generation)
end
if #missing > 0 then redis.call('HSET', state, unpack(missing)) end

local reply = {}
for name, value in pairs(options) do
  table.insert(reply, name)
  table.insert(reply, value)
end
return {generation, reply}
