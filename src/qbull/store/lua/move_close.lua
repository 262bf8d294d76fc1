-- move_close: close a partition: it accepts no more jobs, and its keys belong to another generation. It stays
-- closed even when everything else in it is gone, because a producer that missed the change must still be
-- told.
-- KEYS  base
-- NAMES index
-- FLAGS allow-oom
-- ARGV  generation:int partitions:int
-- GIVES the mark; if it was closed before, the one that it had
local mark = redis.call('HGET', index, '\n')
if mark and string.sub(mark, 1, 6) == 'closed' then return mark end
mark = 'closed ' .. generation .. ' ' .. partitions
redis.call('HSET', index, '\n', mark)
redis.call('UNLINK', base .. 'ahead')
return mark
