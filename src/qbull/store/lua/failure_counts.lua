-- failure_counts: count failed attempts of tasks per minute, and delete counts older than ten minutes.
-- KEYS  base
-- NAMES failing
-- USES  clock
-- FLAGS allow-oom
-- ARGV  … task many example
-- GIVES nothing
local minute = math.floor(now_ms / 60000)
local is_new = false
for i = rest, #ARGV, 3 do
  local many = tonumber(ARGV[i + 1])
  is_new = redis.call('HINCRBY', failing, minute .. ' ' .. ARGV[i], many) == many or is_new
  redis.call('HSET', failing, ARGV[i], ARGV[i + 2])
end
if is_new then
  for _, field in ipairs(redis.call('HKEYS', failing)) do
    local old = tonumber(string.match(field, '^(%d+) '))
    if old and (old < minute - 10 or old > minute) then redis.call('HDEL', failing, field) end
  end
end
redis.call('EXPIRE', failing, 900)
return redis.status_reply('')
