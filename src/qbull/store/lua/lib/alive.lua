-- alive: a worker says that it lives.
-- Where it is late, the server was away, or whoever speaks for the worker: then others may live that could
-- not say so
-- either, and nobody is called dead for as long as it takes them to be heard.
-- NEEDS base
-- USES  clock
local function alive(worker, ttl_ms)
  local until_ms = redis.call('ZSCORE', base .. 'workers', worker)
  if until_ms and tonumber(until_ms) <= now_ms then redis.call('SET', base .. 'truce', '1', 'PX', ttl_ms) end
  redis.call('ZADD', base .. 'workers', now_ms + ttl_ms, worker)
end
