-- jobs_ahead: the number of deliveries before a ready job, up to a limit. More urgent levels come first.
-- KEYS  base
-- FLAGS no-writes
-- NAMES bands
-- ARGV  level entry most:int
-- GIVES the number; `most` + 1 if there are more than `most`
local streams, before = {'0', '5'}, 0
for _, used in ipairs(redis.call('SMEMBERS', bands)) do streams[#streams + 1] = used end
for _, used in ipairs(streams) do
  if used <= level and before <= most then
    local after = '-'
    local groups = redis.pcall('XINFO', 'GROUPS', base .. 'ready:' .. used)
    if not groups.err then
      for _, group in ipairs(groups) do
        for i = 1, #group, 2 do
          if group[i] == 'last-delivered-id' then after = '(' .. group[i + 1] end
        end
      end
    end
    local upto = used == level and '(' .. entry or '+'
    before = before + #redis.call('XRANGE', base .. 'ready:' .. used, after, upto, 'COUNT', most + 1 - before)
  end
end
return before
