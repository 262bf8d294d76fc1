-- heartbeat: record that these workers are alive and what their processes use, and list the dead ones.
-- KEYS  base
-- NAMES workers roster truce
-- USES  clock alive
-- FLAGS allow-oom
-- ARGV  ttl_ms:int  … worker usage
--       usage: empty if nobody has measured it
-- GIVES the workers whose heartbeats have expired; none while there is a truce
for i = rest, #ARGV, 2 do
  alive(ARGV[i], ttl_ms)
  if ARGV[i + 1] ~= '' then redis.call('HSET', roster, 'usage ' .. ARGV[i], ARGV[i + 1]) end
end
local silent = redis.call('ZRANGE', workers, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)
if #silent > 0 and redis.call('EXISTS', truce) == 1 then return {} end
return silent
