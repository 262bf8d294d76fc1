-- lane: the jobs that share a key.
-- `lanes` counts the unsettled jobs of a lane that have been admitted to it: those in front of the workers, those
-- that wait for their next attempt, and those in the lane's list. At most `limit` of them are outside the list;
-- 0 is no limit, so a queue that gave up its order still empties the lists it had.
-- A lane of nine bytes has one outside the list, whatever the queue's limit, and sends no trains.
-- Whoever changes a lane calls write_lanes at the end.
-- In a partition of a later generation (core/layout.py) a lane whose earlier jobs may still be in older partitions is
-- held: all its jobs are in its list, until the mover (store/verbs/move.py) has seen that the older ones have none of it.
-- NEEDS base limit
-- NAMES delayed lanes
-- USES  clock stamp record index tell ready train
local TRAIN = 128
local TRAIN_BYTES = 262144
local counts = {}
local joining = {}

local function lane_list(lane) return base .. 'lane:' .. lane end

local function load_lanes(list)
  for from = 1, #list, 2000 do
    local upto = math.min(from + 1999, #list)
    local found = redis.call('HMGET', lanes, unpack(list, from, upto))
    for i = from, upto do counts[list[i]] = tonumber(found[i - from + 1] or 0) end
  end
end

local function lane_count(lane)
  if not counts[lane] then counts[lane] = tonumber(redis.call('HGET', lanes, lane) or 0) end
  return counts[lane]
end

local function write_joining()
  for lane, ids in pairs(joining) do in_chunks('RPUSH', lane_list(lane), ids) end
  joining = {}
end

local function write_lanes()
  write_joining()
  write_trains()
  local set, gone = {}, {}
  local n, m = 0, 0
  for lane, count in pairs(counts) do
    if count > 0 then
      set[n + 1], set[n + 2] = lane, count
      n = n + 2
    else
      m = m + 1
      gone[m] = lane
    end
  end
  in_chunks('HSET', lanes, set)
  in_chunks('HDEL', lanes, gone)
  counts = {}
end

local mover_told = false
local function tell_mover()
  if not mover_told then tell('bell', 'move') end
  mover_told = true
end

local is_later_generation, waits = nil, {}
local function is_held(lane, before)
  if is_later_generation == nil then is_later_generation = tonumber(string.match(base, ':(%d+)}:$')) >= 4096 end
  if not is_later_generation then return false end
  if waits[lane] == nil then
    local held = redis.call('SISMEMBER', base .. 'held', lane) == 1
    if not held and before == 0 then -- one that has jobs here was let go before
      held = mark_of_partition() ~= 'known' or redis.call('SISMEMBER', base .. 'ahead', lane) == 1
      if held then
        redis.call('SADD', base .. 'held', lane)
        tell_mover()
      end
    end
    waits[lane] = held
  end
  return waits[lane]
end

-- A closed partition takes nothing in: the mover brings it to its new one.
local function leave_to_mover(id, record)
  redis.call('ZADD', delayed, now_ms, id)
  put(id, 'd' .. holding(stamped(record), false))
  tell_mover()
end

local function admit(id, record)
  if places[MARK] ~= false and is_closed() then return leave_to_mover(id, record) end
  local lane = lane_of(record)
  if lane then
    local count = lane_count(lane) + 1
    counts[lane] = count
    local most = #lane == 9 and 1 or limit
    if most > 0 and (count > most or (is_later_generation ~= false and places[MARK] ~= 'clear' and is_held(lane, count - 1))) then
      local ids = joining[lane]
      if not ids then
        ids = {}
        joining[lane] = ids
      end
      ids[#ids + 1] = id
      put(id, 'l' .. stamped(record))
      behind = behind + 1
      return
    end
  end
  add_ready(band_of(record), id, record)
end

-- These go to the head of their lane's list, in order. Their records are in the index and stay there.
local function back_to_lane(lane, ids, from)
  local reversed, n = {}, 0
  for i = #ids, from or 1, -1 do
    n = n + 1
    reversed[n] = ids[i]
  end
  if n > 0 then redis.call('LPUSH', lane_list(lane), unpack(reversed)) end
end

-- The head of a sequential lane: several leave as a train, which is no longer than its first job lets expect.
local function send_train(lane, ids, first)
  local most = math.max(math.floor(TRAIN_BYTES / #first), 1)
  if #ids > most then
    back_to_lane(lane, ids, most + 1)
    for i = #ids, most + 1, -1 do ids[i] = nil end
  end
  if #ids == 1 then
    behind = behind - 1
    add_ready(band_of(first), ids[1], first)
  else
    add_train(band_of(first), lane, ids)
  end
end

-- Take jobs from the heads of these lanes, as far as they have room, and send them off.
local function send_next(freed)
  write_joining()
  local sending, heads, n = {}, {}, 0
  for i = 1, #freed do
    local lane = freed[i]
    local count = lane_count(lane)
    if count > 0 then
      local limit = #lane == 9 and 1 or limit
      local most = TRAIN
      if #lane == 9 then
        most = 1 - (count - redis.call('LLEN', lane_list(lane)))
      elseif limit ~= 1 then
        most = limit > 0 and limit - (count - redis.call('LLEN', lane_list(lane))) or TRAIN
      end
      local ids = most > 0 and redis.call('LPOP', lane_list(lane), most) or {}
      if #ids > 0 and limit == 1 and count > #ids and count > #ids + redis.call('LLEN', lane_list(lane)) then
        back_to_lane(lane, ids) -- the limit was higher before: others of this lane are still outside its list
      elseif limit == 1 and #ids > 0 then
        n = n + 1
        sending[n], heads[n] = {lane, ids}, ids[1]
      else
        for j = 1, #ids do
          n = n + 1
          sending[n], heads[n] = {lane, {ids[j]}}, ids[j]
        end
      end
    end
  end
  local records = records_of(heads)
  for i = 1, n do send_train(sending[i][1], sending[i][2], records[i]) end
end
