-- publish: store the descriptions of the tasks that a worker has in its code. A task has one for each version
-- of the code: a line with the time at which a worker of that version last started, the time at which one was
-- last seen, the digest of the description, and the description. A version that no worker has had for an hour
-- is dropped.
-- KEYS  base
-- NAMES settings
-- USES  clock
-- FLAGS allow-oom
-- ARGV  starts … task digest description
local FORGET_MS, MOST = 3600000, 8
for i = rest, #ARGV, 3 do
  local field, digest = 'described:' .. ARGV[i], ARGV[i + 1]
  local since, others = now_ms, {}
  for line in string.gmatch(redis.call('HGET', settings, field) or '', '[^\n]+') do
    local started, seen, version = string.match(line, '^(%d+) (%d+) (%S+) ')
    if version == digest then
      if starts == '0' then since = tonumber(started) end
    elseif version and now_ms - tonumber(seen) <= FORGET_MS and #others < MOST - 1 then
      others[#others + 1] = line
    end
  end
  table.insert(others, 1, string.format('%.0f %.0f %s %s', since, now_ms, digest, ARGV[i + 2]))
  redis.call('HSET', settings, field, table.concat(others, '\n'))
end
return 1
