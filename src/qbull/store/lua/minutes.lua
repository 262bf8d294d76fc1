-- minutes: what was counted in each of some minutes, the oldest first; those in which there was nothing are left out.
-- KEYS  base
-- FLAGS no-writes
-- USES  clock
-- ARGV  back:int many:int  … what
--       back: how many minutes before this one the first of them is
-- GIVES this minute; and of each minute its number, and a number for each `what`
local names, answer = {}, {math.floor(now_ms / 60000)}
for i = rest, #ARGV do names[#names + 1] = ARGV[i] end
local first = answer[1] - back
for minute = first, first + many - 1 do
  local name = string.format('%sstats:%.0f', base, minute)
  if redis.call('EXISTS', name) == 1 then
    answer[#answer + 1] = minute
    for _, n in ipairs(redis.call('HMGET', name, unpack(names))) do answer[#answer + 1] = tonumber(n or 0) end
  end
end
return answer
