-- clock: the server's time. Delays count from the end of this millisecond, so that nothing runs early.
local now_ms, next_ms
do
  local t = redis.call('TIME')
  now_ms = t[1] * 1000 + math.floor(t[2] / 1000)
  next_ms = t[1] * 1000 + math.ceil(t[2] / 1000)
end
