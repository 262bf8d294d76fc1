-- alert_raise: write down what is known of problems, and enqueue what is to be said of them; unless somebody
-- has done so meanwhile.
-- KEYS  base
-- NAMES alerts
-- USES  index new_job stats
-- FLAGS allow-oom
-- ARGV  limit:int rev state  … id when record
--       rev: what the state was when it was read; when: as in lib/new_job.lua
-- GIVES 1 where it was written
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
