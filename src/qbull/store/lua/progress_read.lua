-- progress_read: the progress that jobs have reported.
-- KEYS  base
-- FLAGS no-writes
-- ARGV  … id
-- GIVES a number as text for each, '' if it has reported none; nothing at all if no job has extras
local found = {}
if redis.call('EXISTS', base .. 'extras') == 0 then return found end
for i = rest, #ARGV do found[#found + 1] = redis.call('HGET', base .. 'job:' .. ARGV[i], 'progress') or '' end
return found
