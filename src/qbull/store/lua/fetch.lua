-- fetch: hand over up to `count` entries of one partition, the most urgent band first.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  worker count:int  … band
-- GIVES band, entry, fields of each
local found = {}
for i = rest, #ARGV do
  if #found >= count then break end
  local stream = base .. 'ready:' .. ARGV[i]
  local reply = redis.call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', count - #found, 'STREAMS', stream, '>')
  if reply then
    for _, entry in ipairs(reply[1][2]) do found[#found + 1] = {ARGV[i], entry[1], entry[2]} end
  end
end
return found
