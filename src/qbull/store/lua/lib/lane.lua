-- lane: the jobs that share a key. Uses record, index, ready.
-- `lanes` counts the unsettled jobs of a lane that have been admitted to it: those in front of the workers, those
-- that wait for their next attempt, and those in the lane's list. At most `limit` of them are outside the list;
-- 0 is no limit, so a queue that gave up its order still empties the lists it had.
local TRAIN = 32
local TRAIN_BYTES = 262144
local counts = {}

local function lane_list(lane) return base .. 'lane:' .. lane end

local function load_lanes(list)
  if #list == 0 then return end
  local found = redis.call('HMGET', lanes, unpack(list))
  for i, lane in ipairs(list) do counts[lane] = tonumber(found[i] or 0) end
end

local function lane_count(lane)
  if not counts[lane] then counts[lane] = tonumber(redis.call('HGET', lanes, lane) or 0) end
  return counts[lane]
end

local function write_lanes()
  local set, gone = {}, {}
  for lane, count in pairs(counts) do
    if count > 0 then
      set[#set + 1] = lane
      set[#set + 1] = count
    else
      gone[#gone + 1] = lane
    end
  end
  in_chunks('HSET', lanes, set)
  in_chunks('HDEL', lanes, gone)
  counts = {}
end

local function admit(id, record)
  local lane = lane_of(record)
  if lane then
    local count = lane_count(lane) + 1
    counts[lane] = count
    if limit > 0 and count > limit then
      redis.call('HSET', parked, id, record)
      redis.call('RPUSH', lane_list(lane), id)
      put(id, 'l')
      return
    end
  end
  add_ready(band_of(record), {id, record})
end

-- Take jobs from the head of the lane's list, while it has room, and send them off: a train where the lane is sequential.
local function release(lane)
  local list = lane_list(lane)
  local waiting = redis.call('LLEN', list)
  local free = limit > 0 and limit - (lane_count(lane) - waiting) or TRAIN
  if waiting == 0 or free < 1 then return end
  local ids = redis.call('LRANGE', list, 0, (limit == 1 and TRAIN or free) - 1)
  local records = redis.call('HMGET', parked, unpack(ids))
  local train, bytes, taken = {}, 0, 0
  for i, id in ipairs(ids) do
    bytes = bytes + #records[i]
    if taken > 0 and bytes > TRAIN_BYTES then break end
    taken = i
    if limit == 1 then
      train[#train + 1] = id
      train[#train + 1] = records[i]
    else
      add_ready(band_of(records[i]), {id, records[i]})
    end
  end
  if limit == 1 then add_ready(band_of(train[2]), train) end
  redis.call('LTRIM', list, taken, -1)
  redis.call('HDEL', parked, unpack(ids, 1, taken))
end

-- The jobs of a train that were not begun go back to the head of their lane, in order.
local function back_to_lane(lane, pairs_)
  for i = #pairs_ - 1, 1, -2 do
    redis.call('HSET', parked, pairs_[i], pairs_[i + 1])
    redis.call('LPUSH', lane_list(lane), pairs_[i])
    put(pairs_[i], 'l')
  end
end
