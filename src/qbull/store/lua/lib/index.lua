-- index: job id → its place. Read and written once for a whole batch.
--   r<level><entry>  in a ready stream, waiting or handed over
--   l<record>  behind others of its lane: in the lane's list, or in a train      d<record>  delayed
--   m<record>  delayed, and on its way to another partition (move_out.lua)
--   c<entry>  completed      f<entry>  failed      x<entry>  cancelled
-- The partition's own mark is in the index too, under a name that no id can have, so that every lookup of ids
-- reads it at no cost. A queue whose partition count never changed has no mark:
--   closed <generation> <partitions>   the partition accepts no more jobs; its keys belong to that generation
--   closed moved <copy> <address>   another server has its jobs
--   closed leaving <mark>, closed arriving   its jobs are copied to another server, or from another one
--   known    `ahead` has all lanes whose earlier jobs are in older partitions
--   clear    no older partition has a lane of this one
--   no mark, in a later generation: any lane may have earlier jobs in older partitions
-- `behind` is the change of the number of jobs with `l`; write_index adds it to `kept`.
-- NEEDS base
-- NAMES index
-- COMMIT write_index
local MARK = '\n'
local LANE_KIND, DELAYED_KIND = 108, 100 -- the letters l and d
local places = {}
local moved = {}
local behind = 0

local function look_up(ids)
  for from = 1, #ids, 2000 do
    local upto = math.min(from + 1999, #ids)
    local found = redis.call('HMGET', index, unpack(ids, from, upto))
    for i = from, upto do places[ids[i]] = found[i - from + 1] end
  end
end

local function place_of(id)
  if moved[id] ~= nil then return moved[id] end
  return places[id] or false
end

local function mark_of_partition()
  if places[MARK] == nil then places[MARK] = redis.call('HGET', index, MARK) end
  return places[MARK]
end

local function is_closed()
  local mark = mark_of_partition()
  return mark and string.sub(mark, 1, 6) == 'closed'
end

-- The records of jobs that are delayed or behind others, and '' for all other jobs.
local function records_of(ids)
  local records = {}
  for from = 1, #ids, 2000 do
    local upto = math.min(from + 1999, #ids)
    local found = redis.call('HMGET', index, unpack(ids, from, upto))
    for i = from, upto do
      local place = moved[ids[i]]
      if place == nil then place = found[i - from + 1] end
      place = place or ''
      local kind = string.byte(place)
      records[i] = (kind == LANE_KIND or kind == DELAYED_KIND) and string.sub(place, 2) or ''
    end
  end
  return records
end

local function put(id, place) moved[id] = place end
local function forget(id) moved[id] = false end

local function in_chunks(command, name, list)
  for from = 1, #list, 2000 do
    redis.call(command, name, unpack(list, from, math.min(from + 1999, #list)))
  end
end

local function write_index()
  if behind ~= 0 then redis.call('HINCRBY', base .. 'kept', 'lanes', behind) end
  if not next(moved) then return end
  local set, gone = {}, {}
  local n, m = 0, 0
  for id, place in pairs(moved) do
    if place then
      set[n + 1], set[n + 2] = id, place
      n = n + 2
    else
      m = m + 1
      gone[m] = id
    end
  end
  in_chunks('HSET', index, set)
  in_chunks('HDEL', index, gone)
end
