-- move_ack: these jobs have arrived in another partition. Clients that wait for their end here must look
-- again.
-- KEYS  base
-- NAMES delayed leaving expiring
-- USES  index extras tell
-- FLAGS allow-oom
-- ARGV  … id
local ids, gone = {}, {}
for i = rest, #ARGV do ids[#ids + 1] = ARGV[i] end
look_up(ids)
for _, id in ipairs(ids) do
  if string.sub(place_of(id) or '', 1, 1) == 'm' then
    gone[#gone + 1] = id
    forget(id)
    forget_extras(id)
  end
end
in_chunks('ZREM', leaving, gone)
in_chunks('ZREM', delayed, gone)
in_chunks('ZREM', expiring, gone)
commit()
if #gone > 0 and redis.call('EXISTS', base .. 'waiters') == 1 then tell('done', table.concat(gone, '\n')) end
return #gone
