-- flow: jobs that wait for others, and the ends that others wait for.
-- A job that waits is delayed, due at NEVER_DUE. job:<id> says what for: `flow`, `mode` (core/flow.py),
-- `when` it may run once they have ended
-- (lib/new_job.lua), how many are `left`, and of each child:<position>: a letter, w while it is waited for,
-- and what is known of it;
-- `stopped` where it has ended because one of them has.
-- `outgoing` has what is to be brought to other partitions by a courier (store/verbs/flows.py), in entries of
--   <letter><id> and the record with its ending: c completed, f failed, x cancelled, - removed, t its id was
--   taken by another job,
--   u it was not needed, and is forgotten
--   n<flow> and the jobs of it that are still to be planted
-- NEEDS base
-- USES  record_layout record msgpack report index tell
-- COMMIT write_onward
local onward, onward_n = {}, 0

local function is_awaited(record)
  return has_flag(record, HAS_DEPENDENTS_FLAG) and is_record(record)
end

-- A large record goes without its payload.
local function tell_flow(letter, id, sealed)
  if not is_awaited(sealed) then return end
  if #sealed > LARGE then
    local has_ending = string.find('cfx', letter, 1, true)
    local at = has_ending and -ENDING_LENGTH_BYTES - seal_size(sealed) or #sealed + 1
    local ending = string.sub(sealed, at)
    sealed = without_value(string.sub(sealed, 1, at - 1), body_at(sealed), PAYLOAD_VALUE) .. ending
  end
  onward[onward_n + 1], onward[onward_n + 2] = letter .. id, sealed
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
