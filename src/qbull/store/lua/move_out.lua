-- move_out: select jobs of a closed partition to move: the delayed ones that do not hold their lane. Each
-- gets a number, and nothing else may change it from now on, so that it arrives as it is, and once. The mover
-- delivers them in the order of their numbers, and they stay here until they have arrived (move_ack.lua).
-- KEYS  base
-- NAMES delayed kept leaving extras expiring
-- USES  clock record index parked parking
-- FLAGS allow-oom
-- ARGV  from:int most:int
--       from: how many jobs of `delayed` were seen before and stay
-- GIVES how many were seen by now and stay; the size of `delayed`; then for each job number, id, due time,
--       record, the time by which it must have started (or nothing), {field, value …} of its extras,
--       {line …} of its log, and {milliseconds that it stays, number, key, value …} of its stream
if not is_closed() then return {0, 0} end

-- At least the current time, so that no number is used twice after a failover that has lost the last ones.
local last
local function next_number()
  local t = redis.call('TIME')
  last = last or tonumber(redis.call('HGET', kept, 'departed') or 0)
  last = math.max(last + 1, t[1] * 1000000 + t[2])
  return string.format('%.0f', last)
end

local function stream_of(id)
  local entries = redis.call('XRANGE', base .. 'stream:' .. id, '-', '+')
  if #entries == 0 then return {} end
  local values = {redis.call('PTTL', base .. 'stream:' .. id)}
  for _, entry in ipairs(entries) do
    local n = #values
    values[n + 1], values[n + 2], values[n + 3] = entry[1], entry[2][2], entry[2][4]
  end
  return values
end

local ids = redis.call('ZRANGE', leaving, 0, most - 1)
local many = #ids
local room = most - many
if room > 0 then
  local some = redis.call('ZRANGE', delayed, from, from + room - 1)
  look_up(some)
  for _, id in ipairs(some) do
    local place = place_of(id) or ''
    if string.sub(place, 1, 1) == 'd' and not holds_lane(string.sub(place, 2)) then
      put(id, 'm' .. string.sub(place, 2))
      if is_parked(id) then -- the readers of its new partition may know it
        leave_parking(id)
        redis.call('ZADD', delayed, now_ms, id)
      end
      redis.call('ZADD', leaving, next_number(), id)
      ids[#ids + 1] = id
    elseif string.sub(place, 1, 1) ~= 'm' then
      from = from + 1
    end
  end
  commit()
  if last then redis.call('HSET', kept, 'departed', string.format('%.0f', last)) end
end
look_up(ids)
local answer = {from, redis.call('ZCARD', delayed)}
for _, id in ipairs(ids) do
  local besides, lines, values = {}, {}, {}
  if redis.call('SISMEMBER', extras, id) == 1 then
    besides = redis.call('HGETALL', base .. 'job:' .. id)
    lines = redis.call('LRANGE', base .. 'log:' .. id, 0, -1)
    values = stream_of(id)
  end
  answer[#answer + 1] = redis.call('ZSCORE', leaving, id)
  answer[#answer + 1] = id
  answer[#answer + 1] = redis.call('ZSCORE', delayed, id)
  answer[#answer + 1] = string.sub(place_of(id) or '', 2)
  answer[#answer + 1] = redis.call('ZSCORE', expiring, id) or ''
  answer[#answer + 1] = besides
  answer[#answer + 1] = lines
  answer[#answer + 1] = values
end
return answer
