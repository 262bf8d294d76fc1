-- flow: jobs that wait for other jobs, and messages about jobs that others wait for.
-- A waiting job is delayed, with NEVER_DUE as its due time. job:<id> describes it: `flow`, `mode`
-- (core/flow.py), `when` it may run after the others have ended (lib/new_job.lua), the number of jobs `left`,
-- and for each of them child:<position>: a letter (w while it has not ended) and its details. `stopped` is
-- set if the job has ended because one of them has.
-- A job may start to wait for one that exists. That one is in `followed` then, and its job:<id> has
-- follower:<name> for each such job (core/flow.py).
-- job:<id> of a durable job has call:<name> for each job that it has called, until the outcome is in its
-- history: a letter and details, as for a dependency.
-- `outgoing` is the flow outbox. The flow dispatcher (store/verbs/flows.py) delivers its messages to other
-- partitions. An entry is one of:
--   <letter><id> and the record with its ending: c completed, f failed, x cancelled, - removed, t its id was
--   taken by another job, u it was not needed and is forgotten
--   a<letter><id> and, for one follower: its size in eight digits, the follower, and the record as above
--   n<flow> and the jobs of the flow that are still to add
--   k<call> and the details of a job whose caller was cancelled, so it is cancelled too
-- NEEDS base
-- USES  record_layout record msgpack report index tell
-- COMMIT write_onward
local onward, onward_n = {}, 0

local function is_awaited(record)
  return has_flag(record, HAS_DEPENDENTS_FLAG) and is_record(record)
end

-- Read once: whether jobs of this partition have followers, and whether a client waits for results.
local any_followed, any_waiter
local function look_for_listeners()
  local many = redis.call('EXISTS', base .. 'followed', base .. 'waiters')
  any_followed = many > 0 and redis.call('EXISTS', base .. 'followed') == 1
  any_waiter = many > (any_followed and 1 or 0)
end

local function has_followers()
  if any_followed == nil then look_for_listeners() end
  return any_followed
end

local function has_waiters()
  if any_waiter == nil then look_for_listeners() end
  return any_waiter
end

-- A large record is sent without its payload.
local function in_message(letter, record)
  if #record <= LARGE then return record end
  local has_ending = string.find('cfx', letter, 1, true)
  local at = has_ending and -ENDING_LENGTH_BYTES - ending_size(record) or #record + 1
  local ending = string.sub(record, at)
  return without_value(string.sub(record, 1, at - 1), body_at(record), PAYLOAD_VALUE) .. ending
end

local function send_onward(name, value)
  onward[onward_n + 1], onward[onward_n + 2] = name, value
  onward_n = onward_n + 2
end

local function tell_follower(letter, id, record, follower)
  send_onward('a' .. letter .. id, string.format('%08d', #follower) .. follower .. in_message(letter, record))
end

-- A job that has not completed keeps its followers: it may be retried.
local function tell_followers(letter, id, record)
  if redis.call('SISMEMBER', base .. 'followed', id) == 0 or not is_record(record) then return end
  local known = redis.call('HGETALL', base .. 'job:' .. id)
  for i = 1, #known, 2 do
    if string.sub(known[i], 1, 9) == 'follower:' then tell_follower(letter, id, record, known[i + 1]) end
  end
  if letter == 'c' then redis.call('SREM', base .. 'followed', id) end
end

local function tell_flow(letter, id, record)
  if is_awaited(record) then send_onward(letter .. id, in_message(letter, record)) end
  if has_followers() then tell_followers(letter, id, record) end
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
