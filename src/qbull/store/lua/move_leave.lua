-- move_leave: let a partition accept no jobs while its last changes are copied to another server, or accept
-- them again. A partition that is closed already stays as it is.
-- KEYS  base
-- NAMES index
-- FLAGS allow-oom
-- ARGV  leaves:int
-- GIVES 1
local LEAVING = 'closed leaving '
local mark = redis.call('HGET', index, '\n') or ''
if leaves == 1 and string.sub(mark, 1, 6) ~= 'closed' then
  redis.call('HSET', index, '\n', LEAVING .. mark)
elseif leaves == 0 and string.sub(mark, 1, #LEAVING) == LEAVING then
  if #mark > #LEAVING then
    redis.call('HSET', index, '\n', string.sub(mark, #LEAVING + 1))
  else
    redis.call('HDEL', index, '\n')
  end
end
return 1
