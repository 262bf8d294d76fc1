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
    local job, log, changes = base .. 'job:' .. id, base .. 'log:' .. id, {}
    redis.call('SADD', extras, id)
    if progress ~= '' then changes = {'progress', progress} end
    if many > 0 then
      local logged = redis.call('HGET', job, 'logged') or ''
      local is_of_delivery = string.sub(logged, 1, #place + 1) == place .. ' '
      local written = is_of_delivery and tonumber(string.sub(logged, #place + 2)) or 0
      local lines, stamp = {}, string.format('%.0f', now_ms) .. ' ' .. attempt .. ' '
      for n = math.max(written - first, 0) + 1, many do lines[#lines + 1] = stamp .. ARGV[i + 6 + n] end
      if lines[1] and redis.call('RPUSH', log, unpack(lines)) > most then
        redis.call('LTRIM', log, -most, -1)
      end
      changes[#changes + 1] = 'logged'
      changes[#changes + 1] = place .. ' ' .. (first + many)
    end
    if changes[1] then redis.call('HSET', job, unpack(changes)) end
  end
  i = i + 7 + many
end
return 1
