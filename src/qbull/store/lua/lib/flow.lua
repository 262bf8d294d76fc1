-- flow: jobs that wait for other jobs, and messages about jobs that others wait for.
-- A waiting job is delayed, with NEVER_DUE as its due time. job:<id> describes it: `flow`, `mode`
-- (core/flow.py), `when` it may run after the others have ended (lib/new_job.lua), the number of jobs `left`,
-- and for each of them child:<position>: a letter (w while it has not ended) and its details. `stopped` is
-- set if the job has ended because one of them has.
-- `outgoing` is the flow outbox. The flow dispatcher (store/verbs/flows.py) delivers its messages to other
-- partitions. An entry is one of:
--   <letter><id> and the record with its ending: c completed, f failed, x cancelled, - removed, t its id was
--   taken by another job, u it was not needed and is forgotten
--   n<flow> and the jobs of the flow that are still to add
-- NEEDS base
-- USES  record_layout record msgpack report index tell
-- COMMIT write_onward
local onward, onward_n = {}, 0

local function is_awaited(record)
  return has_flag(record, HAS_DEPENDENTS_FLAG) and is_record(record)
end

-- A large record is sent without its payload.
local function tell_flow(letter, id, record)
  if not is_awaited(record) then return end
  if #record > LARGE then
    local has_ending = string.find('cfx', letter, 1, true)
    local at = has_ending and -ENDING_LENGTH_BYTES - ending_size(record) or #record + 1
    local ending = string.sub(record, at)
    record = without_value(string.sub(record, 1, at - 1), body_at(record), PAYLOAD_VALUE) .. ending
  end
  onward[onward_n + 1], onward[onward_n + 2] = letter .. id, record
  onward_n = onward_n + 2
end

local function write_onward()
  if onward_n == 0 then return end
  for from = 1, onward_n, 100 do
    redis.call('XADD', base .. 'outgoing', '*', unpack(onward, from, math.min(from + 99, onward_n)))
  end
  tell('bell', 'flow')
end

local function wait_for_others(id, record)
  redis.call('ZADD', base .. 'delayed', NEVER_DUE, id)
  put(id, 'd' .. record)
end
