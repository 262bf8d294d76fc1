-- move_out: which jobs of a closed partition are to be brought to another one? Those that are delayed and do
-- not hold their
-- lane. Each gets a number and is left alone by everybody else from now on, so that it arrives as it is, and
-- once: whoever
-- brings them brings them in the order of these numbers, and they stay here until they have arrived
-- (move_ack.lua).
-- KEYS  base
-- NAMES delayed kept leaving extras expiring
-- USES  record index
-- FLAGS allow-oom
-- ARGV  from:int most:int
--       from: how many of `delayed` were seen and stay
-- GIVES how many of it have been seen by now and stay; how many it has; then for each job number, id, due
--       time, record, the moment
--       by which it must have begun (or nothing), {field, value …} of what it has besides, and {line …} of
--       its log
if not is_closed() then return {0, 0} end

-- Not below the time: after a failover that has lost the last numbers, none of them must come again.
local last
local function next_number()
  local t = redis.call('TIME')
  last = last or tonumber(redis.call('HGET', kept, 'departed') or 0)
  last = math.max(last + 1, t[1] * 1000000 + t[2])
  return string.format('%.0f', last)
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
  local besides, lines = {}, {}
  if redis.call('SISMEMBER', extras, id) == 1 then
    besides, lines = redis.call('HGETALL', base .. 'job:' .. id), redis.call('LRANGE', base .. 'log:' .. id, 0, -1)
  end
  answer[#answer + 1] = redis.call('ZSCORE', leaving, id)
  answer[#answer + 1] = id
  answer[#answer + 1] = redis.call('ZSCORE', delayed, id)
  answer[#answer + 1] = string.sub(place_of(id) or '', 2)
  answer[#answer + 1] = redis.call('ZSCORE', expiring, id) or ''
  answer[#answer + 1] = besides
  answer[#answer + 1] = lines
end
return answer
