-- emit: add values to the streams of running jobs (core/streams.py). A job whose delivery now belongs to
-- another worker is refused. A value that the stream has had is not added again. The oldest values are
-- deleted when there are too many.
-- KEYS  base
-- NAMES index extras
-- USES  train
-- FLAGS allow-oom
-- ARGV  most:int most_bytes:int keep_ms:int  … id place lane name count content
--       lane: of the train that it is in, or ''
--       name, count: recognise a value of a durable task, which may come again in another run; name is
--       <checkpoints>:<digest>. For any other value name is '', and count is its number in this delivery
-- GIVES 1 for each value, 0 if it was refused
-- job:<id> has these fields:
--   stream      the number of the newest value, and the size of all values that are there
--   emitting    the delivery that has emitted last, and how many values
--   emit:<name> how often this value was emitted
--   emitted     the checkpoints of the newest of these

-- Forget the values that came after a checkpoint which has moved since: they cannot come again.
local function forget_values(job, position)
  if redis.call('HGET', job, 'emitted') == position then return end
  local gone = {}
  for _, field in ipairs(redis.call('HKEYS', job)) do
    local earlier = string.match(field, '^emit:([^:]*):')
    if earlier and earlier ~= '' and string.sub(position .. '/', 1, #earlier + 1) ~= earlier .. '/' then
      gone[#gone + 1] = field
    end
  end
  for _, field in ipairs(gone) do redis.call('HDEL', job, field) end
  redis.call('HSET', job, 'emitted', position)
end

local function is_new(job, place, name, count)
  if name == '' then
    local delivery, last = string.match(redis.call('HGET', job, 'emitting') or '', '^(.*):(%d+)$')
    if delivery == place and count <= tonumber(last) then return false end
    redis.call('HSET', job, 'emitting', string.format('%s:%.0f', place, count))
    return true
  end
  forget_values(job, string.match(name, '^[^:]*'))
  if count <= tonumber(redis.call('HGET', job, 'emit:' .. name) or 0) then return false end
  redis.call('HSET', job, 'emit:' .. name, count)
  return true
end

local function add(id, job, key, content)
  local stream = base .. 'stream:' .. id
  local last, bytes = string.match(redis.call('HGET', job, 'stream') or '0 0', '^(%d+) (%d+)$')
  local length = redis.call('XLEN', stream)
  last = string.format('%.0f', tonumber(last) + 1)
  bytes = (length > 0 and tonumber(bytes) or 0) + #content
  redis.call('XADD', stream, last .. '-0', 'k', key, 'v', content)
  length = length + 1
  while length > 1 and (length > most or bytes > most_bytes) do
    bytes = bytes - #redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1][2][4]
    length = length - 1
    redis.call('XTRIM', stream, 'MAXLEN', length)
  end
  redis.call('PEXPIRE', stream, keep_ms)
  redis.call('HSET', job, 'stream', string.format('%s %.0f', last, bytes))
end

local answer = {}
for i = rest, #ARGV, 6 do
  local id, place, lane, name = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local count, content = ARGV[i + 4], ARGV[i + 5]
  local ours
  if lane ~= '' then
    ours = settled_of(lane, place)
  else
    ours = redis.call('HGET', index, id) == 'r' .. place
  end
  if ours then
    local job = base .. 'job:' .. id
    redis.call('SADD', extras, id)
    if is_new(job, place, name, tonumber(count)) then
      add(id, job, (name ~= '' and name or place) .. ':' .. count, content)
    end
  end
  answer[#answer + 1] = ours and 1 or 0
end
return answer
