-- minutes: what was counted in each of some minutes, the oldest first.
-- KEYS  base
-- FLAGS no-writes
-- USES  clock
-- ARGV  back:int many:int  … what
--       back: how many minutes before this one the first of them is
-- GIVES the first minute, and for each minute a number for each `what`
local names, answer = {}, {}
for i = rest, #ARGV do names[#names + 1] = ARGV[i] end
local first = math.floor(now_ms / 60000) - back
answer[1] = first
for minute = first, first + many - 1 do
  local found = redis.call('HMGET', base .. 'stats:' .. string.format('%.0f', minute), unpack(names))
  for i = 1, #names do answer[#answer + 1] = tonumber(found[i] or 0) end
end
return answer
