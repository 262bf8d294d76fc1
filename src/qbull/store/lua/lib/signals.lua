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

local function last_signal(id) return (signals_of(id)) end

local function set_signals(id, last, waiting)
  redis.call('HSET', job_of(id), 'signals', table.concat({string.format('%.0f', last), unpack(waiting)}, ' '))
end

-- The task takes a signal. A call that is sent again finds that it is gone.
local function take_signal(id, number)
  if redis.call('HDEL', job_of(id), 'signal:' .. number) == 0 then return end
  local last, waiting = signals_of(id)
  for i = #waiting, 1, -1 do
    if waiting[i] == number then table.remove(waiting, i) end
  end
  set_signals(id, last, waiting)
end
