-- signals: the signals of a durable job that its task has not taken. job:<id> has them:
--   signal:<number>  a signal (core/signals.py)
--   signals          the number of the newest signal, then the numbers of those that wait, in order
--   signaled         the digests of the ids of the newest ones, 16 characters each
-- NEEDS base
local function job_of(id) return base .. 'job:' .. id end

-- The number of the newest signal, and the numbers of those that wait.
local function signals_of(id)
  local waiting = {}
  for number in string.gmatch(redis.call('HGET', job_of(id), 'signals') or '0', '%d+') do
    waiting[#waiting + 1] = number
  end
  local last = tonumber(table.remove(waiting, 1))
  return last, waiting
end
