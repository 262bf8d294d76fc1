-- take: remove a job from its place, wherever that is. The consequences (the next job of its lane starts, an
-- empty entry of finished jobs is deleted) follow once, at the end of the script.
-- NEEDS base
-- NAMES index delayed kept
-- USES  stamp record index ready train lane_lists lane next_jobs dropped_entries state parking
-- COMMIT write_taken
local touched, fewer = {}, {}

local function leave_its_lane(record)
  local lane = lane_of(record)
  if not lane then return end
  counts[lane] = lane_count(lane) - 1
  if redis.call('SISMEMBER', base .. 'held', lane) == 0 then free_lane(lane) end
end

-- A train that no worker has taken yet goes on without one of its jobs, and keeps its turn.
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

-- Take a waiting or delayed job and return its record. If a worker has it: nil, and the place of the
-- delivery.
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
    leave_parking(id)
    redis.call('ZREM', delayed, id)
    if holds_lane(record) then leave_its_lane(record) end
  else
    local lane = lane_of(record)
    write_joining()
    local list = lane_lists.of_job(lane, record)
    if redis.call('LREM', list, 1, id) == 1 then
      if list ~= lane_lists.name(lane) and redis.call('EXISTS', list) == 0 then
        lane_lists.set_level(lane, level_of(record), false)
      end
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

-- Take a finished job and return its record with the ending. A lane that it halts stays halted.
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

-- Runs after write_index: an entry is empty if the index no longer names it for any of its jobs.
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
