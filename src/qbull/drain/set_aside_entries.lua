-- set_aside_entries: take entries of a stream from a consumer group, and keep them until they are enqueued.
-- KEYS[1]  the hash in which they are stored apart, on the old server
-- ARGV     stream group idle_ms drainer shared  and for each: name entry stored
--          group: empty if the stream has none
--          idle_ms: an entry that a consumer has had for a shorter time stays with it
--          drainer: the consumer whose entries are ours at any time
--          shared: "yes" if other groups read the stream too; then the entries stay in it
-- GIVES    for each "ours", "gone" if it was acknowledged or deleted meanwhile, or "stays" with its consumer
-- Sent without the shebang line of newer servers: the old server may not know it.
local stream, group, idle_ms, drainer = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local shared = ARGV[5] == 'yes'

local function after(one, other)
  local a, b = string.match(one, '^(%d+)-(%d+)$')
  local c, d = string.match(other, '^(%d+)-(%d+)$')
  if a ~= c then return tonumber(a) > tonumber(c) end
  return tonumber(b) > tonumber(d)
end

local delivered = '0-0'
if group ~= '' then
  for _, found in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local about = {}
    for n = 1, #found, 2 do about[found[n]] = found[n + 1] end
    if about.name == group then delivered = about['last-delivered-id'] end
  end
end

local function take(entry)
  if #redis.call('XRANGE', stream, entry, entry) == 0 then return 'gone' end
  if group ~= '' then
    local pending = redis.call('XPENDING', stream, group, entry, entry, 1)[1]
    if pending then
      if pending[2] ~= drainer and pending[3] < idle_ms then return 'stays' end
      redis.call('XACK', stream, group, entry)
    elseif shared or not after(entry, delivered) then
      return 'gone'
    end
  end
  if not shared then redis.call('XDEL', stream, entry) end
  return 'ours'
end

local taken = {}
for i = 6, #ARGV, 3 do
  local name, entry, stored = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local word = redis.call('HGET', KEYS[1], name) == stored and 'ours'
  if not word then
    word = take(entry)
    if word == 'ours' then redis.call('HSET', KEYS[1], name, stored) end
  end
  taken[#taken + 1] = word
end
return taken
