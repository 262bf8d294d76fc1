-- retry: run failed or cancelled jobs again, with a new record. A job that halts its lane goes to its head,
-- any other to its end. A job that ended because another of its flow did waits for that one again, and so
-- does one that was cancelled before the others had ended. A job whose place has changed since it was seen is
-- left alone.
-- KEYS  base
-- USES  record_layout record report index flow ready lane state stats take idempotent
-- FLAGS allow-oom
-- ARGV  token limit:int  … id place record
-- GIVES a word for each: "retried", "moved" (it has finished once more since), or its current state
local before = answered(token)
if before then return before end

local ids, words, again = {}, {}, {}
for i = rest, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
look_up(ids)

local function must_wait(id, place, record)
  if not has_flag(record, HAS_DEPENDENCIES_FLAG) then return false end
  local is_stopped = redis.call('HDEL', base .. 'job:' .. id, 'stopped') == 1
  if not is_stopped and string.sub(place, 1, 1) ~= 'x' then return false end
  return tonumber(redis.call('HGET', base .. 'job:' .. id, 'left') or 0) > 0
end

local has_extras = redis.call('EXISTS', base .. 'extras') == 1
for i = rest, #ARGV, 3 do
  local id, place, record = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local now = place_of(id)
  local word = 'retried'
  if not now then
    word = 'unknown'
  elseif now ~= place then
    word = state_at(id, now)
    if word == 'failed' or word == 'cancelled' then word = 'moved' end
  else
    take_finished(id, place)
    if must_wait(id, place, record) then
      wait_for_others(id, record)
    elseif holds_lane(record) then
      add_ready(level_of(record), id, record)
    else
      admit(id, record)
    end
    if has_extras then redis.call('HDEL', base .. 'job:' .. id, 'progress') end
    report('w', id, record, REPORT_ALL_FLAG)
    again[#again + 1] = id
  end
  words[#words + 1] = word
end
in_chunks('ZREM', base .. 'expiring', again) -- the expiry was that of the first run
count_up('redriven', #again)
commit()
return answer(token, #again > 0, words)
