-- start_check: whether a job may start now. An expired one may not, nor one whose key has used up its rate.
-- KEYS  base
-- USES  clock rate
-- FLAGS allow-oom
-- ARGV  expires_ms:int lane count:int window_ms:int ahead_ms:int unused:int want:int  … older
--       expires_ms: a time, 0 for never; count: 0 if its lane has no rate; unused: a start that was granted
--       and not used; want: 1, or 0 to only return that start; older: the logs of the lane in the partitions
--       that it was in before, which count too
-- GIVES "expired" or "allowed"; the milliseconds until it may start; how its start was noted, or 0; and the
--       milliseconds until it expires
local left = math.max(expires_ms - now_ms, 0)
if expires_ms > 0 and left == 0 then return {'expired', 0, 0, 0} end
if count == 0 then return {'allowed', 0, 0, left} end
local name = base .. 'rate:' .. lane
local log = read_log(name, window_ms)
if unused > 0 then take_back(log, unused, 1) end
local all = log
for i = rest, #ARGV do all = joined_logs(all, parse_log(ARGV[i], window_ms)) end
local plan, next_start = plan_starts(all, count, window_ms, want, now_ms + ahead_ms)
local noted = plan[1] and note_starts(log, count, window_ms, plan[1][1], 1) or 0
write_log(name, log, window_ms)
return {'allowed', (plan[1] and plan[1][1] or next_start) - now_ms, noted, left}
