-- minutes: the counts of some minutes, the oldest first. Minutes without any are left out.
-- KEYS  base
-- FLAGS no-writes
-- USES  clock
-- ARGV  last:int many:int  … what
--       last: the number of the last minute; 0 is the current one
-- GIVES the current minute; and for each minute its number, and a number for each `what`
local names, answer = {}, {math.floor(now_ms / 60000)}
for i = rest, #ARGV do names[#names + 1] = ARGV[i] end
if last == 0 then last = answer[1] end
for minute = last - many + 1, last do
  local name = string.format('%sstats:%.0f', base, minute)
  if redis.call('EXISTS', name) == 1 then
    answer[#answer + 1] = minute
    for _, n in ipairs(redis.call('HMGET', name, unpack(names))) do answer[#answer + 1] = tonumber(n or 0) end
  end
end
return answer
