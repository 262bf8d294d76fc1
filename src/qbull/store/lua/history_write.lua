-- history_write: add records to the histories of running jobs (core/durable.py). A job whose delivery now
-- belongs to another worker is refused, and nothing of it is written. A signal is deleted when the record
-- with its value is written, so it is delivered once.
-- KEYS  base
-- NAMES index extras
-- USES  train signals
-- FLAGS allow-oom
-- ARGV  … id place lane before first last taken many number record …
--       lane: of the train that it is in, or ''; before: how many jobs of the train come before it
--       first, last: the numbers of the records that are deleted; none if first is greater
--       taken: the number of the signal that the record has, or ''
--       many: how many records follow
-- GIVES 1 for each job, 0 if it was refused
local answer = {}
local i = rest
while i <= #ARGV do
  local id, place, lane, before = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local first, last = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  local taken, many = ARGV[i + 6], tonumber(ARGV[i + 7])
  local ours
  if lane ~= '' then
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
    for at = i + 8, i + 6 + 2 * many, 2 do redis.call('HSET', job, 'step:' .. ARGV[at], ARGV[at + 1]) end
    if taken ~= '' then take_signal(id, taken) end
  end
  answer[#answer + 1] = ours and 1 or 0
  i = i + 8 + 2 * many
end
return answer
