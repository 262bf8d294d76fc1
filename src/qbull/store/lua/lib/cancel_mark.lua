-- cancel_mark: tells the worker that holds a job to stop it: cancelling: id → <place of the delivery>
-- <ending>. The mark belongs to the delivery. A marked job is cancelled instead of being retried or delivered
-- again. If no job of the partition has extras, no mark is read.
-- NEEDS base
-- NAMES cancelling
-- USES  record_layout record index lane flow finish
local has_extras = redis.call('EXISTS', base .. 'extras') == 1
local marked = has_extras and redis.call('EXISTS', cancelling) == 1

local function mark(id, place, ending)
  redis.call('SADD', base .. 'extras', id)
  redis.call('HSETNX', cancelling, id, place .. ' ' .. ending)
end

local function drop_marks(list, from, upto, step)
  for i = from, upto, step do redis.call('HDEL', cancelling, list[i]) end
end

local function mark_of(id)
  local text = marked and redis.call('HGET', cancelling, id)
  return text and string.sub(text, string.find(text, ' ', 1, true) + 1)
end

-- The jobs that a durable job has called, and that have not ended, are cancelled with it (lib/flow.lua).
local function finish_cancelled(id, record, ending)
  record = with_flag(holding(record, false), RETURNS_TO_LANE_FLAG, false)
  finish('cancelled', {id, record .. ending}, 1, 2)
  local job = base .. 'job:' .. id
  for _, field in ipairs(has_extras and redis.call('HKEYS', job) or {}) do
    local told = string.sub(field, 1, 5) == 'call:' and redis.call('HGET', job, field) or ''
    if string.sub(told, 1, 1) == 'w' then send_onward('k' .. string.sub(field, 6), string.sub(told, 2)) end
  end
end

-- The ids of a returned delivery without the marked jobs, which are cancelled here. If none are left, also
-- the lane that is free now. Pass `lane` for a train, `record` for a single job.
local function without_marked(ids, lane, record)
  if not marked or not ids[1] then return ids end
  local left, its_lane = {}, lane or lane_of(record)
  for _, id in ipairs(ids) do
    local ending = mark_of(id)
    if ending then
      finish_cancelled(id, lane and records_of({id})[1] or record, ending)
      redis.call('HDEL', cancelling, id)
      if lane then behind = behind - 1 end
      if its_lane then counts[its_lane] = lane_count(its_lane) - 1 end
    else
      left[#left + 1] = id
    end
  end
  return left, not left[1] and its_lane
end
