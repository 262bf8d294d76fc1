-- alert_watch: is it this one's turn to look for problems? Then what is known of them.
-- KEYS  base
-- NAMES alerts
-- USES  clock
-- FLAGS allow-oom
-- ARGV  who ttl_ms:int
--       ttl_ms: for how long it is the turn of nobody else
-- GIVES nothing where it is another one's turn, else the time, the revision, the state
local turn = redis.call('HMGET', alerts, 'who', 'until', 'rev', 'state')
if turn[1] and turn[1] ~= who and tonumber(turn[2]) > now_ms and tonumber(turn[2]) <= now_ms + ttl_ms then return {} end
redis.call('HSET', alerts, 'who', who, 'until', now_ms + ttl_ms)
return {now_ms, turn[3] or '0', turn[4] or ''}
