-- The moves of one request. Who moves it places or touches its lane.
-- INCLUDE: begin writes counts records lists
-- KEYS: delayed dead cancelled

local instant_bytes = struct.pack('>I8', now)
local waiting, buried, unmarked = {}, {}, {}
local any_marked = redis.call('SCARD', cancelled) > 0

local function make_ready(lane, raw)
  push(tails, lane, raw:byte(3), raw:sub(1, 8) .. instant_bytes .. raw:sub(17))
end

-- To the head of its list, as if it had never left.
local function put_in_front(lane, raw)
  push(fronts, lane, raw:byte(3), raw)
end

-- Lanes of requests that are due before all that were waiting: who waits must look again.
local sooner = {}
local first_due

local function note_due(due, raw)
  if not first_due then
    local first = redis.call(
      'ZRANGEBYSCORE', delayed, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    first_due = tonumber(first[2]) or math.huge
  end
  if due < first_due then table.insert(sooner, lane_of(read(raw))) end
end

local function make_wait(raw, delay)
  note_due(now + delay, raw)
  table.insert(waiting, now + delay)
  table.insert(waiting, struct.pack('>I8', next_number()) .. raw)
  count('delayed', 1)
end

local function bury(raw, reason, detail)
  table.insert(buried, now)
  table.insert(buried,
    struct.pack('>I8BH', next_number(), reason, #detail) .. detail .. raw)
  count('dead', 1)
  count('buried', 1)
end

local function bury_unreadable(raw)
  bury(raw, REASON_CORRUPT, 'unreadable')
end

-- Take a mark away; whether there was one.
local function unmark(name)
  if unmarked[name] or redis.call('SISMEMBER', cancelled, name) == 0 then return false end
  unmarked[name] = true
  remove('SREM', cancelled, {name})
  return true
end

-- Whether it was cancelled: by its id while that is under way, then by the token of its lease. A
-- token is of this delivery alone: another request may have entered under the id since.
local function take_mark(record, token)
  if not any_marked then return false end
  return token and unmark(token) or unmark(id_of(record))
end

-- A cancelled request goes no further than its next move.
local function is_dropped(record, token)
  if not take_mark(record, token) then return false end
  count('cancelled', 1)
  return true
end

local function write_requests()
  insert('ZADD', delayed, waiting)
  insert('ZADD', dead, buried)
end
