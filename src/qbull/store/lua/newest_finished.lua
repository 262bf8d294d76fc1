-- newest_finished: the newest entry of finished jobs up to a place.
-- KEYS  base
-- FLAGS no-writes
-- ARGV  state upto oldest
-- GIVES its id, nothing if there is none
local found = redis.call('XREVRANGE', base .. state, upto, oldest, 'COUNT', 1)[1]
return found and found[1] or ''
