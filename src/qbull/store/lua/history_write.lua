-- history_write: add records to the histories of running jobs (core/durable.py). A job whose delivery now
-- belongs to another worker is refused, and nothing of it is written.
-- KEYS  base
-- NAMES index extras
-- USES  train
-- FLAGS allow-oom
-- ARGV  … id place lane before first last many number record …
--       lane: of the train that it is in, or ''; before: how many jobs of the train come before it
--       first, last: the numbers of the records that are deleted; none if first is greater
--       many: how many records follow
-- GIVES 1 for each job, 0 if it was refused
local answer = {}
local i = rest
while i <= #ARGV do
  local id, place, lane, before = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local first, last, many = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
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
    for at = i + 7, i + 5 + 2 * many, 2 do redis.call('HSET', job, 'step:' .. ARGV[at], ARGV[at + 1]) end
  end
  answer[#answer + 1] = ours and 1 or 0
  i = i + 7 + 2 * many
end
return answer
