-- The record of a request: numbers at fixed places, then id, lane, key, history and body.

-- What a record says, nil for bytes that do not have the shape of one.
local function read(raw)
  if #raw < HEADER_SIZE then return nil end
  local version, _, priority, id_size, _, deaths, ready_at, expires_at, lane_size, key_size,
    history_size, body_size = struct.unpack('>BBBBHHI8I8HHI4I4', raw)
  local head_size = HEADER_SIZE + id_size + lane_size + key_size + history_size
  if version ~= RECORD_VERSION or priority < 1 or priority > CRITICAL
    or head_size + body_size ~= #raw then
    return nil
  end
  return {raw = raw, priority = priority, deaths = deaths, ready_at = ready_at,
    expires_at = expires_at, id_size = id_size, lane_size = lane_size, key_size = key_size,
    head_size = head_size}
end

local function id_of(record)
  return record.raw:sub(HEADER_SIZE + 1, HEADER_SIZE + record.id_size)
end

local function lane_of(record)
  local start = HEADER_SIZE + record.id_size
  return record.raw:sub(start + 1, start + record.lane_size)
end

local function key_of(record)
  local start = HEADER_SIZE + record.id_size + record.lane_size
  return record.raw:sub(start + 1, start + record.key_size)
end

-- A lease is stored as the lane it was taken from, then the record.
local function lease_value(lane, raw)
  return struct.pack('>H', #lane) .. lane .. raw
end

local function split_lease(value)
  local lane_size = #value < 2 and #value or struct.unpack('>H', value)
  if #value < 2 + lane_size then return '', value end
  return value:sub(3, 2 + lane_size), value:sub(3 + lane_size)
end
