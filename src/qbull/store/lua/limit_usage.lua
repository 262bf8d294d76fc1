-- limit_usage: the current use of a queue's limits.
-- KEYS  base
-- FLAGS no-writes
-- NAMES places starts
-- USES  clock rate
-- ARGV  count:int window_ms:int
-- GIVES slots in use, the milliseconds until the rate allows the next start, the server's time
local used = 0
for _, value in ipairs(redis.call('HVALS', places)) do used = used + tonumber(string.match(value, '^%d+')) end
if count == 0 then return {used, 0, now_ms} end
local _, next_start = plan_starts(read_log(starts, window_ms), count, window_ms, 0, now_ms)
return {used, math.max(next_start - now_ms, 0), now_ms}
