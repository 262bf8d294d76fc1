-- signal_changes: add and take the signals of a durable job (lib/signals.lua).
-- NEEDS base
-- USES  signals
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
