-- limit_usage: what is used of a queue's limits now.
-- KEYS  base
-- FLAGS no-writes
-- NAMES places starts
-- USES  clock rate
-- ARGV  count:int window_ms:int
-- GIVES places in use, the milliseconds until the next start of the rate may be made, the server's time
local used = 0
for _, value in ipairs(redis.call('HVALS', places)) do used = used + tonumber(string.match(value, '^%d+')) end
if count == 0 then return {used, 0, now_ms} end
local _, next_start = plan_starts(read_log(starts, window_ms), count, window_ms, 0, now_ms)
return {used, math.max(next_start - now_ms, 0), now_ms}
