-- Takes new requests in, each key once. A key is seen if and only if its request was accepted.
-- INCLUDE: begin writes counts records seen lanes lists requests
-- KEYS: checkpoints
-- REST: additions

local told = {}

local function unpack_request(packed)
  local delay, expires_in, hash, told_id, start = struct.unpack('>I8I8Bc0Hc0', packed)
  local record = read(packed:sub(start))
  if not record then error('a new request does not have the shape of a record') end
  if hash ~= '' and told[hash] == nil then
    told[hash] = redis.call('HGET', bucket_of(hash), field_of(hash))
  end
  return {delay = delay, expires_in = expires_in, hash = hash, told_id = told_id,
    record = record, lane = lane_of(record)}
end

-- An addition is a checkpoint, as pairs of name and value, and requests.
local function take_addition(pair_count, request_count)
  local addition = {checkpoint = {}, requests = {}}
  for at = 1, 2 * pair_count do addition.checkpoint[at] = take() end
  for at = 1, request_count do addition.requests[at] = unpack_request(take()) end
  return addition
end

local function lanes_of(additions)
  local names = {}
  for _, addition in ipairs(additions) do
    for _, request in ipairs(addition.requests) do names[#names + 1] = request.lane end
  end
  return names
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

local function accept(request)
  if request.hash ~= '' then
    told[request.hash] = request.told_id
    insert('HSET', bucket_of(request.hash), {field_of(request.hash), request.told_id})
  end
  count('enqueued', 1)
  local expires_at = request.expires_in > 0 and now + request.expires_in or 0
  local raw = request.record.raw
  raw = raw:sub(1, 8) .. instant_bytes .. struct.pack('>I8', expires_at) .. raw:sub(25)
  if request.delay > 0 then return make_wait(raw, request.delay) end
  local lane = known[request.lane]
  push(tails, lane, request.record.priority, raw)
  touch(lane)
end

-- What became of each request goes to outcomes, the ids that duplicates are known under to ids.
local function admit(addition, places, outcomes, ids)
  for _, request in ipairs(addition.requests) do
    if is_seen(request) then
      count('duplicates', 1)
      table.insert(outcomes, ADMISSION_DUPLICATE)
      table.insert(ids, told[request.hash])
    elseif places <= 0 then
      table.insert(outcomes, ADMISSION_FULL)
    else
      places = places - 1
      accept(request)
      table.insert(outcomes, ADMISSION_NEW)
    end
  end
  insert('HSET', checkpoints, addition.checkpoint)
end

local function as_bytes(numbers)
  local bytes = {}
  for at, one in ipairs(numbers) do bytes[at] = string.char(one) end
  return table.concat(bytes)
end
