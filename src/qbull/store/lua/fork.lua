-- fork: add a job that continues the history of another one (core/fork.py). The job and its history are one
-- change, so no worker can see the job without its steps. A job whose id is already there is not added again.
-- KEYS  base
-- NAMES extras
-- USES  stamp record_layout record report index lane idempotent stats
-- ARGV  limit:int token id record  … field value
--       token: the same call sent again gets the same answer
--       field, value: its history, as the data of a job has it
-- GIVES "added", "known" if the id is already there, or the mark of a closed partition ("closed …")
local before = answered(token)
if before then return before end

look_up({id, MARK})
if place_of(id) then return 'known' end
if is_closed() then return mark_of_partition() end

local lane = lane_of(record)
if lane then load_lanes({lane}) end
local data = {}
for i = rest, #ARGV do data[#data + 1] = ARGV[i] end
if #data > 0 then
  redis.call('SADD', extras, id)
  in_chunks('HSET', base .. 'job:' .. id, data)
end
-- A record with its time tells the worker to read the history.
admit(id, stamped(record))
report('w', id, record, REPORT_ALL_FLAG)
count_up('enqueued', 1)
commit()
return answer(token, true, {'added'})
