-- move_in: accept jobs from a closed partition. They come in the order of their numbers, so the last number
-- that arrived tells whether a job was here before, even if it has run and was forgotten since.
-- KEYS  base
-- NAMES delayed arrivals extras expiring followed
-- USES  index tell
-- FLAGS allow-oom
-- ARGV  source  … number id due record ends besides lines values
--       besides, lines, values: how many arguments follow these: field, value … of the job's extras, lines of
--       its log, and its stream (move_out.lua)
-- GIVES 1, or the mark of this partition if it is closed itself
if is_closed() then return mark_of_partition() end

-- These arguments in portions: `unpack` takes a limited number.
local function arguments(from, upto)
  local list = {}
  for i = from, upto do list[#list + 1] = ARGV[i] end
  return list
end

local function add_stream(id, from, upto)
  if upto < from then return end
  local stream = base .. 'stream:' .. id
  for i = from + 1, upto, 3 do redis.call('XADD', stream, ARGV[i], 'k', ARGV[i + 1], 'v', ARGV[i + 2]) end
  if tonumber(ARGV[from]) > 0 then redis.call('PEXPIRE', stream, ARGV[from]) end
end

local last = tonumber(redis.call('HGET', arrivals, source) or 0)
local at, came = rest, false
while at <= #ARGV do
  local number, id, due, record = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local ends, besides = ARGV[at + 4], at + 8
  local lines = besides + ARGV[at + 5]
  local values = lines + ARGV[at + 6]
  at = values + ARGV[at + 7]
  look_up({id})
  if number > last and not place_of(id) then
    redis.call('ZADD', delayed, due, id)
    put(id, 'd' .. record)
    if ends ~= '' then redis.call('ZADD', expiring, ends, id) end
    if at > besides then
      in_chunks('HSET', base .. 'job:' .. id, arguments(besides, lines - 1))
      in_chunks('RPUSH', base .. 'log:' .. id, arguments(lines, values - 1))
      add_stream(id, values, at - 1)
      redis.call('SADD', extras, id)
      for i = besides, lines - 2, 2 do
        if string.sub(ARGV[i], 1, 9) == 'follower:' then redis.call('SADD', followed, id) end
      end
    end
    came = true
  end
  last = math.max(last, number)
end
redis.call('HSET', arrivals, source, string.format('%.0f', last))
commit()
if came then tell('bell', 'due') end
return 1
