-- lane: the jobs that share a key. Uses clock, record, index, ready.
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
      redis.call('HSET', parked, id, stamped(record))
      redis.call('RPUSH', lane_list(lane), id)
      put(id, 'l')
      return
    end
  end
  add_ready(band_of(record), {id, record})
end

local function push_back(lane, ids, from)
  for i = #ids, from, -1 do redis.call('LPUSH', lane_list(lane), ids[i]) end
end

-- Take jobs from the heads of these lanes, as far as they have room, and send them off: a sequential lane as a train.
local function release(freed)
  local trains, ids = {}, {}
  for _, lane in ipairs(freed) do
    local count = lane_count(lane)
    if count > 0 then
      local most = TRAIN
      if limit > 1 then most = limit - (count - redis.call('LLEN', lane_list(lane))) end
      local taken = most > 0 and redis.call('LPOP', lane_list(lane), most) or {}
      if taken and #taken > 0 then
        if limit == 1 and count > #taken and count > #taken + redis.call('LLEN', lane_list(lane)) then
          push_back(lane, taken, 1) -- the limit was higher before: others of this lane are still outside its list
        else
          trains[#trains + 1] = {lane, taken}
          for _, id in ipairs(taken) do ids[#ids + 1] = id end
        end
      end
    end
  end
  local gone, at = {}, 0
  local records = {}
  for from = 1, #ids, 1000 do
    local some = redis.call('HMGET', parked, unpack(ids, from, math.min(from + 999, #ids)))
    for i = 1, math.min(1000, #ids - from + 1) do records[from + i - 1] = some[i] end
  end
  for _, found in ipairs(trains) do
    local lane, taken = found[1], found[2]
    local train, bytes = {}, 0
    for i, id in ipairs(taken) do
      local record = records[at + i]
      bytes = bytes + #record
      if i > 1 and bytes > TRAIN_BYTES then
        push_back(lane, taken, i)
        break
      end
      gone[#gone + 1] = id
      if limit == 1 then
        train[#train + 1] = id
        train[#train + 1] = record
      else
        add_ready(band_of(record), {id, record})
      end
    end
    at = at + #taken
    if #train > 0 then add_ready(band_of(train[2]), train) end
  end
  in_chunks('HDEL', parked, gone)
end

-- The jobs of a train that were not begun go back to the head of their lane, in order.
local function back_to_lane(lane, pairs_)
  for i = #pairs_ - 1, 1, -2 do
    redis.call('HSET', parked, pairs_[i], pairs_[i + 1])
    redis.call('LPUSH', lane_list(lane), pairs_[i])
    put(pairs_[i], 'l')
  end
end
