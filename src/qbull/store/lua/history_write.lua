-- history_write: add records to the histories of running jobs (core/durable.py). A job whose delivery now
-- belongs to another worker is refused, and nothing of it is written. A signal is deleted when the record
-- with its value is written, so it is delivered once. The record that starts a call is written together with
-- the message that enqueues the called job, so there is one job for each call. A published value is written
-- together with its record, so that a run which starts again does not publish it again.
-- KEYS  base
-- NAMES index extras outgoing
-- USES  pending train signal_changes tell
-- FLAGS allow-oom
-- ARGV  worker  … id place lane before many first last taken joined call published
--       number record … told plan value
--       lane: of the train that it is in, or ''; before: how many jobs of the train come before it
--       many: how many records follow. '' if there is one and nothing else changes, as with most steps: then
--         its number and the record are all that follows
--       first, last: the numbers of the records that are deleted; none if first is greater
--       taken: the number of the signal that the record has, or ''
--       joined: the name of the call whose outcome the record has, or ''
--       call: the name of the call that starts with the first record, or ''. Then two more arguments follow
--         the records: the details of the called job, and its flow of one job (store/verbs/flows.py)
--       published: the name of the value that the job publishes, or ''. Then the value is the last argument
-- GIVES 1 for each job, 0 if it was refused
local answer, has_called = {}, false
local i = rest
while i <= #ARGV do
  local id, place, lane, before = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local many, first, last, taken, joined, call, published = 1, 1, 0, '', '', '', ''
  local records = i + 5
  if ARGV[i + 4] ~= '' then
    many, first, last = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
    taken, joined, call, published = ARGV[i + 7], ARGV[i + 8], ARGV[i + 9], ARGV[i + 10]
    records = i + 11
  end
  local after = records + 2 * many
  local value = after + (call ~= '' and 2 or 0)
  local ours
  if not is_pending_for(place, worker) then
    ours = false
  elseif lane ~= '' then
    -- The outcomes of the jobs before it may still be on their way.
    local settled = settled_of(lane, place)
    ours = settled and settled <= before
  else
    ours = redis.call('HGET', index, id) == 'r' .. place
  end
  if ours then
    local job = base .. 'job:' .. id
    redis.call('SADD', extras, id)
    for number = first, last do redis.call('HDEL', job, 'step:' .. number) end
    if call ~= '' and redis.call('HEXISTS', job, 'step:' .. ARGV[records]) == 0 then
      redis.call('HSET', job, 'call:' .. call, 'w' .. ARGV[after])
      redis.call('XADD', outgoing, '*', 'n' .. call, ARGV[after + 1])
      has_called = true
    end
    for at = records, after - 2, 2 do redis.call('HSET', job, 'step:' .. ARGV[at], ARGV[at + 1]) end
    if published ~= '' then redis.call('HSET', job, 'published:' .. published, ARGV[value]) end
    if taken ~= '' then take_signal(id, taken) end
    if joined ~= '' then redis.call('HDEL', job, 'call:' .. joined) end
  end
  answer[#answer + 1] = ours and 1 or 0
  i = value + (published ~= '' and 1 or 0)
end
if has_called then tell('bell', 'flow') end
return answer
