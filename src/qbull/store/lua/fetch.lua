-- fetch: deliver up to `count` entries of these streams in total, in the order of the streams.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  worker count:int  … stream
--       streams of one partition; of several if the server is no cluster
-- GIVES stream, entry, fields of each
local found = {}
for i = rest, #ARGV do
  if #found >= count then break end
  local reply = redis.call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', count - #found,
    'STREAMS', ARGV[i], '>')
  if reply then
    for _, entry in ipairs(reply[1][2]) do found[#found + 1] = {ARGV[i], entry[1], entry[2]} end
  end
end
return found
