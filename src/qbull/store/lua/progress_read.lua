-- progress_read: how far jobs say that they are.
-- KEYS  base
-- FLAGS no-writes
-- ARGV  … id
-- GIVES a number as text for each, '' where it has said none; nothing at all where no job has extras
local found = {}
if redis.call('EXISTS', base .. 'extras') == 0 then return found end
for i = rest, #ARGV do found[#found + 1] = redis.call('HGET', base .. 'job:' .. ARGV[i], 'progress') or '' end
return found
