-- alert_raise: store the state of the known problems, and enqueue the alerts about them. Does nothing if
-- another watcher has changed the state in the meantime.
-- KEYS  base
-- NAMES alerts
-- USES  index new_job stats
-- FLAGS allow-oom
-- ARGV  limit:int rev state  … id when record
--       rev: the revision of the state when it was read; when: as in lib/new_job.lua
-- GIVES 1 if it was written, else 0
if (redis.call('HGET', alerts, 'rev') or '0') ~= rev then return 0 end
redis.call('HSET', alerts, 'rev', tonumber(rev) + 1, 'state', state)
local added = 0
for i = rest, #ARGV, 3 do
  look_up({ARGV[i]})
  if not place_of(ARGV[i]) then
    add_job(ARGV[i], ARGV[i + 1], ARGV[i + 2])
    added = added + 1
  end
end
count_up('enqueued', added)
commit()
return 1
