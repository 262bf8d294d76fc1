-- alive: record the heartbeat of a worker.
-- A late heartbeat means that the server, or the process that sends the heartbeats, was unavailable. Other
-- live workers may have been silent too, so nobody is declared dead until they have had time to report.
-- NEEDS base
-- USES  clock
local function alive(worker, ttl_ms)
  local until_ms = redis.call('ZSCORE', base .. 'workers', worker)
  if until_ms and tonumber(until_ms) <= now_ms then redis.call('SET', base .. 'truce', '1', 'PX', ttl_ms) end
  redis.call('ZADD', base .. 'workers', now_ms + ttl_ms, worker)
end
