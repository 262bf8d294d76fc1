-- move_close: nothing gets into this partition any more; its keys go to another generation. That stays so,
-- also when all else
-- of the partition is gone: a producer that has slept through the change must be told.
-- KEYS  base
-- NAMES index
-- FLAGS allow-oom
-- ARGV  generation:int partitions:int
-- GIVES the mark: the one that it had, where it was closed before
local mark = redis.call('HGET', index, '\n')
if mark and string.sub(mark, 1, 6) == 'closed' then return mark end
mark = 'closed ' .. generation .. ' ' .. partitions
redis.call('HSET', index, '\n', mark)
redis.call('UNLINK', base .. 'ahead')
return mark
