-- declare: find the version of the code that decides about a queue's schedules. Of the versions that workers
-- run it is the newest: the one that was first seen last. A version that no worker has run for an hour counts
-- as new when it comes back.
-- KEYS  base
-- NAMES versions
-- USES  clock
-- FLAGS allow-oom
-- ARGV  … version
-- GIVES the version that decides
local FORGET_MS = 3600000
local found = redis.call('HGETALL', versions)
local since = {}
for i = 1, #found, 2 do
  local first, last = string.match(found[i + 1], '^(%d+) (%d+)$')
  if now_ms - tonumber(last) > FORGET_MS then
    redis.call('HDEL', versions, found[i])
  else
    since[found[i]] = tonumber(first)
  end
end
local newest
for i = rest, #ARGV do
  local version = ARGV[i]
  since[version] = since[version] or now_ms
  redis.call('HSET', versions, version, string.format('%.0f %.0f', since[version], now_ms))
  local newer = newest and since[version] > since[newest]
  local same = newest and since[version] == since[newest]
  if not newest or newer or (same and version > newest) then
    newest = version
  end
end
redis.call('PEXPIRE', versions, 2 * FORGET_MS)
return newest
