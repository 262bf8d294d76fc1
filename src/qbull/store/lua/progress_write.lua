-- progress_write: store the progress and the log lines of running jobs. A job whose delivery now belongs to
-- another worker is ignored.
-- KEYS  base
-- NAMES index extras
-- USES  clock train
-- FLAGS allow-oom
-- ARGV  most:int  … id place lane progress attempt first many line …
--       most: log lines kept per job; lane: of the train that it is in, or ''; progress: '' if unchanged;
--       first: how many lines this delivery has logged before these; some of these may be stored already
local i = rest
while i <= #ARGV do
  local id, place, lane, progress, attempt = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local first, many = tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
  local ours
  if lane ~= '' then
    ours = settled_of(lane, place)
  else
    ours = redis.call('HGET', index, id) == 'r' .. place
  end
  if ours then
    local job = base .. 'job:' .. id
    redis.call('SADD', extras, id)
    if progress ~= '' then redis.call('HSET', job, 'progress', progress) end
    local logged = many > 0 and redis.call('HGET', job, 'logged') or ''
    local is_of_delivery = string.sub(logged, 1, #place + 1) == place .. ' '
    local written = is_of_delivery and tonumber(string.sub(logged, #place + 2)) or 0
    for n = math.max(written - first, 0) + 1, many do
      local line = string.format('%.0f', now_ms) .. ' ' .. attempt .. ' ' .. ARGV[i + 6 + n]
      redis.call('RPUSH', base .. 'log:' .. id, line)
    end
    if many > 0 then
      redis.call('LTRIM', base .. 'log:' .. id, -most, -1)
      redis.call('HSET', job, 'logged', place .. ' ' .. (first + many))
    end
  end
  i = i + 7 + many
end
return 1
