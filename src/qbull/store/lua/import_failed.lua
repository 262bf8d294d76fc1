-- import_failed: add jobs that have failed permanently in another system, as dead letters. A job is added
-- once: its name is remembered for its window, also if the job has been removed or retried since.
-- KEYS  base
-- USES  stamp index stats finish
-- ARGV  failed:int failed_ms:int  … id record name window_ms
--       record: with its ending
-- GIVES "added", or the mark of a closed partition ("closed …"), which has added none of them
local ids = {MARK}
for i = rest, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
look_up(ids)
if is_closed() then return mark_of_partition() end

local added = 0
for i = rest, #ARGV, 4 do
  local id, record, name = ARGV[i], ARGV[i + 1], base .. 'unique:' .. ARGV[i + 2]
  if not place_of(id) and redis.call('SET', name, id, 'PX', ARGV[i + 3], 'NX') then
    finish('failed', {id, stamped(record)}, 1, 2)
    added = added + 1
  end
end
count_up('enqueued', added)
commit()
return 'added'
