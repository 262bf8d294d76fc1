-- lane: the jobs that share a key.
-- `lanes` counts the unsettled jobs that a lane has admitted: those in ready streams, those in the lane's
-- list, and those that hold their lane while they wait. At most `limit` of them are outside the list. 0 means
-- no limit, so a queue that gave up its order still empties the lists it had.
-- With an order, a job holds its lane until its next attempt. Without one it leaves the lane when it starts
-- to wait, and returns to the head of the list (settle.lua).
-- A lane of SINGLE_LANE_BYTES has one job outside the list, whatever the queue's limit, and sends no trains.
-- In a partition of a later generation (core/layout.py), a lane is held while older partitions may have jobs
-- of it: all its jobs stay in its list until the mover (store/verbs/move.py) has found none in the older
-- ones.
-- NEEDS base limit
-- NAMES delayed lanes
-- USES  clock stamp record_layout record index tell ready train lane_lists
-- COMMIT write_lanes
local counts = {}
local joining, returning = {}, {} -- ids by list: <lane> or <lane>:<level>

-- Note that a lane has a list of this level, or none any more.
lane_lists.set_level = function(lane, level, is_there)
  local before, levels = lane_lists.levels(lane), {}
  for other in string.gmatch(before, '.') do
    if other ~= level then levels[#levels + 1] = other end
  end
  if is_there then levels[#levels + 1] = level end
  table.sort(levels)
  local after = table.concat(levels)
  if after == before then return end
  lane_lists.ranks[''], lane_lists.ranks[lane] = true, after
  if after == '' then
    redis.call('HDEL', base .. 'ranked', lane)
  else
    redis.call('HSET', base .. 'ranked', lane, after)
  end
end

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
  for list, ids in pairs(joining) do in_chunks('RPUSH', lane_lists.name(list), ids) end
  for list, ids in pairs(returning) do
    local reversed = {}
    for i = #ids, 1, -1 do reversed[#reversed + 1] = ids[i] end
    in_chunks('LPUSH', lane_lists.name(list), reversed)
  end
  joining, returning = {}, {}
end

local function write_lanes()
  write_joining()
  write_trains()
  if not next(counts) then return end
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
end

local mover_told = false
local function tell_mover()
  if not mover_told then tell('bell', 'move') end
  mover_told = true
end

local is_later_generation, waits = nil, {}
local function is_held(lane, before)
  if is_later_generation == nil then
    is_later_generation = tonumber(string.match(base, ':(%d+)}:$')) >= GENERATION_SPAN
  end
  if not is_later_generation then return false end
  if waits[lane] == nil then
    local held = redis.call('SISMEMBER', base .. 'held', lane) == 1
    if not held and before == 0 then -- a lane that has jobs here was freed before
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

-- A closed partition admits no jobs: the mover takes them to their new one.
local function leave_to_mover(id, record)
  redis.call('ZADD', delayed, now_ms, id)
  put(id, 'd' .. holding(stamped(record), false))
  tell_mover()
end

-- Count a job that comes to a lane. Returns whether the lane has room for it outside the list.
local function enter_lane(lane)
  local count = lane_count(lane) + 1
  counts[lane] = count
  local most = #lane == SINGLE_LANE_BYTES and 1 or limit
  if most == 0 then return true end
  local may_be_held = is_later_generation ~= false and places[MARK] ~= 'clear'
  return count <= most and not (may_be_held and is_held(lane, count - 1))
end

-- The job waits in its list of the lane: at the end, or before all others if it returns.
local function wait_in_lane(lane, id, record, returns)
  local lists = returns and returning or joining
  local list = lane
  if has_flag(record, RANKED_FLAG) then list = lane_lists.short_name(lane, level_of(record)) end
  local ids = lists[list]
  if not ids then
    ids = {}
    lists[list] = ids
    if list ~= lane then lane_lists.set_level(lane, level_of(record), true) end
  end
  ids[#ids + 1] = id
  put(id, 'l' .. stamped(record))
  behind = behind + 1
end

-- The job may run as soon as its lane has room. `returns`: it left its lane to wait, and comes first in it.
local function admit(id, record, returns)
  if places[MARK] ~= false and is_closed() then return leave_to_mover(id, record) end
  if returns then record = with_flag(record, RETURNS_TO_LANE_FLAG, false) end
  local lane = lane_of(record)
  if lane and not enter_lane(lane) then return wait_in_lane(lane, id, record, returns) end
  add_ready(level_of(record), id, record)
end
