-- signals_read: the signals of a durable job that its task has not taken.
-- KEYS  base
-- USES  clock signals
-- FLAGS no-writes
-- ARGV  id
-- GIVES the server's time in milliseconds, the number of the newest signal, then number and signal of each
local last, waiting = signals_of(id)
local answer = {now_ms, last}
for _, number in ipairs(waiting) do
  answer[#answer + 1] = tonumber(number)
  answer[#answer + 1] = redis.call('HGET', job_of(id), 'signal:' .. number) or ''
end
return answer
