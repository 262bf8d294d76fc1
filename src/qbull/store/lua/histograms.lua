-- histograms: add to the histograms of a queue. A call that is sent again counts once.
-- KEYS  base
-- NAMES figures
-- USES  clock
-- FLAGS allow-oom
-- ARGV  token  … name n
-- GIVES now in ms
if rest > #ARGV then return now_ms end
if redis.call('SET', base .. 'once:' .. token, '1', 'NX', 'EX', 60) then
  for i = rest, #ARGV, 2 do redis.call('HINCRBY', figures, ARGV[i], ARGV[i + 1]) end
end
return now_ms
