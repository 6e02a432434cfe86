-- The record of a request: numbers at fixed places, then id, lane, key, history and body.

-- What the bytes from `start` on say, nothing if they do not have the shape of a record.
local function shape(raw, start)
  if #raw - start + 1 < HEADER_SIZE then return nil end
  local version, _, priority, id_size, _, deaths, ready_at, expires_at, lane_size, key_size,
    history_size, body_size = struct.unpack('>BBBBHHI8I8HHI4I4', raw, start)
  local head_size = HEADER_SIZE + id_size + lane_size + key_size + history_size
  if version ~= RECORD_VERSION or priority < 1 or priority > CRITICAL
    or head_size + body_size ~= #raw - start + 1 then
    return nil
  end
  return priority, deaths, ready_at, expires_at, id_size, lane_size, key_size, head_size
end

local function read_into(record, raw)
  local priority, deaths, ready_at, expires_at, id_size, lane_size, key_size, head_size =
    shape(raw, 1)
  if not priority then return nil end
  record.raw, record.priority, record.deaths = raw, priority, deaths
  record.ready_at, record.expires_at, record.head_size = ready_at, expires_at, head_size
  record.id_size, record.lane_size, record.key_size = id_size, lane_size, key_size
  return record
end

local function read(raw)
  return read_into({}, raw)
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

-- A lease is stored as the lane it was taken from, then the record. Where the record begins:
local function record_start(value)
  local start = #value < 2 and 3 or 3 + struct.unpack('>H', value)
  return start <= #value + 1 and start or 1
end

local function split_lease(value)
  local start = record_start(value)
  return value:sub(3, start - 1), value:sub(start)
end
