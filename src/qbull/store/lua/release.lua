-- release: a worker gives deliveries back that it will not run to their end now. Nothing is counted against them.
-- KEYS  base
-- NAMES index bands trains
-- USES  clock stamp record index tell ready train delivery
-- FLAGS allow-oom
-- ARGV  … place
--       one may be named twice; entries leave at the end, so it would be found there once more
-- GIVES how many jobs went back
local jobs, seen = 0, {}
for i = rest, #ARGV do
  local band, entry = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2)
  local ids, lane, record = {}, nil, nil
  if not seen[ARGV[i]] then ids, lane, record = unsettled(band, entry) end
  seen[ARGV[i]] = true
  if lane then
    add_train('0', lane, ids, entry)
  elseif ids[1] then
    add_ready('0', ids[1], record, entry)
  end
  if ids[1] then leave(band, entry) end
  jobs = jobs + #ids
end
write_leaving()
write_index()
write_trains()
return jobs
