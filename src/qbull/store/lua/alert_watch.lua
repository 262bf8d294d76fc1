-- alert_watch: take the turn to look for problems, and read the known ones.
-- KEYS  base
-- NAMES alerts
-- USES  clock
-- FLAGS allow-oom
-- ARGV  who ttl_ms:int
--       ttl_ms: how long nobody else gets the turn
-- GIVES nothing if it is another watcher's turn, else the time, the revision, the state
local turn = redis.call('HMGET', alerts, 'who', 'until', 'rev', 'state')
local ends_ms = turn[1] and tonumber(turn[2])
if ends_ms and turn[1] ~= who and ends_ms > now_ms and ends_ms <= now_ms + ttl_ms then return {} end
redis.call('HSET', alerts, 'who', who, 'until', now_ms + ttl_ms)
return {now_ms, turn[3] or '0', turn[4] or ''}
