-- Takes new requests in, each key once. A key is seen if and only if its request was accepted.
-- INCLUDE: begin writes counts records seen lanes lists requests
-- KEYS: checkpoints
-- REST: additions

local told = {}

local function unpack_request(packed)
  local delay, expires_in, hash, told_id, start = struct.unpack('>I8I8Bc0Hc0', packed)
  local priority, _, _, _, id_size, lane_size = shape(packed, start)
  if not priority then error('a new request does not have the shape of a record') end
  if hash ~= '' and told[hash] == nil then
    told[hash] = redis.call('HGET', bucket_of(hash), field_of(hash))
  end
  local lane_start = start + HEADER_SIZE + id_size
  return {delay = delay, expires_in = expires_in, hash = hash, told_id = told_id,
    packed = packed, start = start, priority = priority, lane_start = lane_start,
    lane = packed:sub(lane_start, lane_start + lane_size - 1)}
end

local no_addition = {checkpoint = {}, requests = {}}

-- An addition is a checkpoint, as pairs of name and value, and requests.
local function take_addition(pair_count, request_count)
  if pair_count == 0 and request_count == 0 then return no_addition end
  local addition = {checkpoint = {}, requests = {}}
  for at = 1, 2 * pair_count do addition.checkpoint[at] = take() end
  for at = 1, request_count do addition.requests[at] = unpack_request(take()) end
  return addition
end

local function name_lanes(addition, names)
  for _, request in ipairs(addition.requests) do names[#names + 1] = request.lane end
end

local function is_seen(request)
  return request.hash ~= '' and told[request.hash]
end

-- How many places the requests would take.
local function fresh(requests)
  local places, counted_keys = 0, {}
  for _, request in ipairs(requests) do
    if not is_seen(request) and not counted_keys[request.hash] then
      places = places + 1
      if request.hash ~= '' then counted_keys[request.hash] = true end
    end
  end
  return places
end

local function is_over_the_bound(request)
  return max_keyed > 0 and request.hash ~= '' and keyed() >= max_keyed
end

local function accept(request)
  if request.hash ~= '' then
    count('keyed', 1)
    told[request.hash] = request.told_id
    insert('HSET', bucket_of(request.hash), {field_of(request.hash), request.told_id})
  end
  count('enqueued', 1)
  local expires_at = request.expires_in > 0 and now + request.expires_in or 0
  local packed, start = request.packed, request.start
  -- What is accepted now is not what was to be cancelled.
  if any_marked then unmark(packed:sub(start + HEADER_SIZE, request.lane_start - 1)) end
  local raw = packed:sub(start, start + 7) .. instant_bytes .. struct.pack('>I8', expires_at)
    .. packed:sub(start + 24)
  if request.delay > 0 then return make_wait(raw, request.delay) end
  local lane = known[request.lane]
  push(tails, lane, request.priority, raw)
  touch(lane)
end

-- What became of each request goes to outcomes, the ids that duplicates are known under to ids.
-- What follows one without a place is brought again with it, and is counted then.
local function admit(addition, places, outcomes, ids)
  local was_full = false
  for _, request in ipairs(addition.requests) do
    if was_full then
      table.insert(outcomes, ADMISSION_FULL)
    elseif is_seen(request) then
      count('duplicates', 1)
      table.insert(outcomes, ADMISSION_DUPLICATE)
      table.insert(ids, told[request.hash])
    elseif is_over_the_bound(request) then
      table.insert(outcomes, ADMISSION_OVER)
    elseif places <= 0 then
      was_full = true
      table.insert(outcomes, ADMISSION_FULL)
    else
      places = places - 1
      accept(request)
      outcomes[#outcomes + 1] = ADMISSION_NEW
    end
  end
  insert('HSET', checkpoints, addition.checkpoint)
end

local function as_bytes(numbers)
  local bytes = {}
  for first = 1, #numbers, STEP do
    bytes[#bytes + 1] = string.char(unpack(numbers, first, math.min(first + STEP - 1, #numbers)))
  end
  return table.concat(bytes)
end
