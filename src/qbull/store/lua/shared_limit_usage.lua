-- shared_limit_usage: the current use of a limit that several queues share.
-- KEYS  base
-- FLAGS no-writes
-- NAMES active settings live totals
-- USES  clock rate shared_limit
-- ARGV  most:int  … key
-- GIVES the values of its settings as they are stored, declared and live; slots in use over all keys; the
--       weight of today over all keys; the weight that was ever granted, and ever given back; the server's
--       time; then five values for each of these keys, and for up to `most` further ones that have used most
--       today or run most jobs: key, slots in use, weight in the last window, weight of today, workers that
--       wait
local rate = setting('rate')
local today = math.floor(now_ms / 86400000)
local counted = redis.call('HMGET', totals, 'granted', 'returned', 'day', 'spent')
local all, rows, shown, further = 0, {}, {}, 0

local function show(key)
  if shown[key] then return end
  shown[key] = true
  rows[#rows + 1] = key
  rows[#rows + 1] = tonumber(redis.call('HGET', active, key) or 0)
  rows[#rows + 1] = rate and read_log(log_name(key), rate.window_ms).used or 0
  rows[#rows + 1] = spent(today, key)
  rows[#rows + 1] = redis.call('HLEN', line_name(key))
end

for i = rest, #ARGV do show(ARGV[i]) end
local running = {}
local flat = redis.call('HGETALL', active)
for i = 1, #flat, 2 do
  all = all + tonumber(flat[i + 1])
  running[#running + 1] = {flat[i], tonumber(flat[i + 1])}
end
table.sort(running, function(a, b) return a[2] > b[2] or (a[2] == b[2] and a[1] < b[1]) end)
local most_used = most > 0 and redis.call('ZRANGE', base .. 'spent:' .. today, 0, most - 1, 'REV') or {}
for _, one in ipairs(running) do most_used[#most_used + 1] = one[1] end
for _, key in ipairs(most_used) do
  if further < most and not shown[key] then
    further = further + 1
    show(key)
  end
end
return {
  redis.call('HGETALL', settings), redis.call('HGETALL', live), all,
  tonumber(counted[3] or 0) == today and tonumber(counted[4]) or 0,
  tonumber(counted[1] or 0), tonumber(counted[2] or 0), now_ms, rows,
}
