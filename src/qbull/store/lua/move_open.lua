-- move_open: another server has deleted the jobs of which this partition has a copy. Put the copy in place,
-- and open the partition.
-- KEYS  base
-- NAMES index arriving
-- FLAGS allow-oom
-- ARGV  token run  … name
--       token: names the move
--       run: names the copy, whose names are <run>:<name>; empty to open the partition without a copy
-- GIVES 1, also if the copy was in place before; or 0 if the partition has jobs of its own
local ours = redis.call('HGET', arriving, 'token') == token
local has_jobs = redis.call('HLEN', index) > redis.call('HEXISTS', index, '\n')
local was = base .. run .. ':was'
if run == '' then
  if ours and not has_jobs then redis.call('DEL', index, arriving) end
  return 1
end
if redis.call('EXISTS', was) == 0 then return 1 end
if not ours and has_jobs then return 0 end
local mark = redis.call('GET', was)
redis.call('DEL', index, arriving, was)
for i = rest, #ARGV do redis.call('RENAME', base .. run .. ':' .. ARGV[i], base .. ARGV[i]) end
if mark ~= '' then redis.call('HSET', index, '\n', mark) end
return 1
