-- clock: time is the server's.
local now_ms
do
  local t = redis.call('TIME')
  now_ms = t[1] * 1000 + math.floor(t[2] / 1000)
end
