-- set_aside: take messages of another library from their queue, and keep them until they are enqueued here.
-- KEYS[1]  the hash in which they are stored apart, on the old server
-- ARGV     kind collection index  and for each: name value stored, how many keys, and those keys
--          kind: "tail" of a list, whose priorities may be in `index`, or "head", "member" of a sorted set,
--                "field" of a hash with its order in `index`,
--                "schedule": a member of a sorted set. The first two keys are the score that it must have and
--                its next job, which is removed from the sorted set `index`; the third is the job's own key
--          keys: those of this message alone, which are deleted with it
-- GIVES    for each "ours", "gone" if an old worker has taken it meanwhile, or "stays" if an older message of
--          its name is set aside
-- Sent without the shebang line of newer servers: the old server may not know it.
local kind, collection, index = ARGV[1], ARGV[2], ARGV[3]

local function take(value, keys)
  if kind == 'tail' then
    local found = redis.call('LREM', collection, -1, value)
    if found > 0 and index ~= '' then redis.call('ZREM', index, value) end
    return found
  end
  if kind == 'head' then return redis.call('LREM', collection, 1, value) end
  if kind == 'member' then return redis.call('ZREM', collection, value) end
  if kind == 'field' then
    redis.call('ZREM', index, value)
    return redis.call('HDEL', collection, value)
  end
  if redis.call('ZSCORE', collection, value) ~= table.remove(keys, 1) then return 0 end
  if redis.call('ZREM', index, table.remove(keys, 1)) == 0 then table.remove(keys, 1) end
  return redis.call('ZREM', collection, value)
end

local taken = {}
local i = 4
while i <= #ARGV do
  local name, value, stored, many = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local keys = {}
  for n = 1, many do keys[n] = ARGV[i + 3 + n] end
  local before = redis.call('HGET', KEYS[1], name)
  -- If this call was sent before, the message is ours already: an equal one in the queue is another message.
  local word = before == stored and 'ours' or before and 'stays' or 'gone'
  if not before and take(value, keys) > 0 then
    redis.call('HSET', KEYS[1], name, stored)
    if #keys > 0 then redis.call('DEL', unpack(keys)) end
    word = 'ours'
  end
  taken[#taken + 1] = word
  i = i + 4 + many
end
return taken
