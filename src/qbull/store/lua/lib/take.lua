-- take: a job leaves the place where it is, whatever that is.
-- What follows from it (the next of its lane, an entry of finished jobs that is empty now) is done once, at
-- the end.
-- NEEDS base
-- NAMES index delayed kept
-- USES  stamp record index ready train lane next_jobs dropped_entries state
-- COMMIT write_taken
local touched, fewer = {}, {}

local function leave_its_lane(record)
  local lane = lane_of(record)
  if not lane then return end
  counts[lane] = lane_count(lane) - 1
  if redis.call('SISMEMBER', base .. 'held', lane) == 0 then free_lane(lane) end
end

-- A train that no worker has yet goes on without one of its jobs, and does not queue up again behind
-- everybody.
local function leave_train(id, lane, place, ids)
  local others = {}
  for _, other in ipairs(ids) do
    if other ~= id then others[#others + 1] = other end
  end
  drop_entry(string.sub(place, 1, 1), string.sub(place, 2))
  counts[lane] = lane_count(lane) - 1
  if #others > 1 then
    add_train('0', lane, others, string.sub(place, 2))
  else
    set_train(lane, false)
    if others[1] then
      behind = behind - 1
      add_ready('0', others[1], records_of(others)[1], string.sub(place, 2))
    else
      free_lane(lane)
    end
  end
end

-- A job that waits or is delayed: its record. Where a worker has it, nothing, and the place of the delivery.
local function take_waiting(id, place)
  local kind, record = string.sub(place, 1, 1), string.sub(place, 2)
  if kind == 'm' then return nil end
  if kind == 'r' then
    if handed_over(record) then return nil, record end
    local stream, entry = base .. 'ready:' .. string.sub(record, 1, 1), string.sub(record, 2)
    local fields = redis.call('XRANGE', stream, entry, entry)[1][2]
    redis.call('XDEL', stream, entry)
    record = stamped(fields[2], entry)
    leave_its_lane(record)
  elseif kind == 'd' then
    redis.call('ZREM', delayed, id)
    if holds_lane(record) then leave_its_lane(record) end
  else
    local lane = lane_of(record)
    write_joining()
    if redis.call('LREM', lane_list(lane), 1, id) == 1 then
      leave_its_lane(record)
    else
      local train, ids = train_of(id, lane)
      if not train or handed_over(train) then return nil, train end
      leave_train(id, lane, train, ids)
    end
    behind = behind - 1
  end
  return record
end

-- A finished job: its record with the ending behind it. One that halts its lane goes on doing so.
local function take_finished(id, place)
  local stream, entry = STATE[string.sub(place, 1, 1)], string.sub(place, 2)
  local bundle = touched[place]
  if not bundle then
    bundle = {redis.call('XRANGE', base .. stream, entry, entry)[1][2], 0}
    touched[place] = bundle
  end
  local fields = bundle[1]
  bundle[2] = bundle[2] + 1
  fewer[stream] = (fewer[stream] or 0) + 1
  for i = 1, #fields, 2 do
    if fields[i] == id then return fields[i + 1] end
  end
end

local function is_empty(place, fields, taken)
  if taken == #fields / 2 then return true end
  local ids = {}
  for i = 1, #fields, 2 do ids[#ids + 1] = fields[i] end
  for _, now in ipairs(redis.call('HMGET', index, unpack(ids))) do
    if now == place then return false end
  end
  return true
end

-- Behind write_index: an entry is empty if the index names it for none of its jobs any more.
local function write_taken()
  local empty = {}
  for place, bundle in pairs(touched) do
    if is_empty(place, bundle[1], bundle[2]) then
      local stream = STATE[string.sub(place, 1, 1)]
      local list = empty[stream] or {}
      list[#list + 1] = string.sub(place, 2)
      empty[stream] = list
    end
  end
  for stream, list in pairs(empty) do in_chunks('XDEL', base .. stream, list) end
  for stream, n in pairs(fewer) do redis.call('HINCRBY', kept, stream, -n) end
end
