-- flow_deliver: tell jobs of this partition that jobs of their flow, which they wait for, have ended. A job
-- that has nothing left to wait for may run; one that can no longer run ends too. The same message sent again
-- changes nothing.
-- KEYS  base
-- NAMES delayed
-- USES  stamp record_layout report index flow new_job extras finish cancel_mark take
-- FLAGS allow-oom
-- ARGV  limit:int failed:int failed_ms:int  … id flow position letter told ending
--       id, position: the job that waits, and for which of its dependencies; letter: as in lib/flow.lua;
--       ending: what to append to its record if it ends too
-- GIVES a word for each: "joined", "known", "unknown" (it is not here), "again" (it is moving to another
--       partition: ask again)
local words, ended = {}, {}
do
  local ids = {}
  for i = rest, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
  look_up(ids)
end

-- The expiry of a job that expires some seconds after it was enqueued counts from now.
local function let_go(id, record, when)
  if expires_at(when) then record = unstamped(record) end
  add_job(id, when, record)
end

local function end_too(id, place, letter, ending)
  local record = take_waiting(id, place)
  redis.call('HSET', base .. 'job:' .. id, 'stopped', 1)
  if letter == 'f' or letter == 't' then
    finish('failed', {id, record .. ending}, 1, 2)
  else
    finish_cancelled(id, record, ending)
  end
  forget(id) -- until write_finished writes its new place
  ended[id] = true
end

local function join(id, place, flow, position, letter, told, ending)
  local job, kind = base .. 'job:' .. id, string.sub(place, 1, 1)
  local known = redis.call('HMGET', job, 'flow', 'mode', 'child:' .. position, 'when', 'stopped')
  local mode, before = known[2], known[3] and string.sub(known[3], 1, 1)
  if known[1] ~= flow or not before or before == 'c' then return 'known' end
  local counts_as_done = letter == 'c' or mode == 'continue'
  local was_done = mode == 'continue' and before ~= 'w'
  if was_done and letter ~= 'c' then return 'known' end
  redis.call('HSET', job, 'child:' .. position, letter .. told)
  local left = counts_as_done and not was_done and redis.call('HINCRBY', job, 'left', -1)
  local waits = kind == 'd' and redis.call('ZSCORE', delayed, id) == NEVER_DUE
  if waits and (letter == 'u' or (mode == 'rescue' and letter == 'c')) then -- the job is not needed
    tell_flow('u', id, take_waiting(id, place))
    forget(id)
    forget_extras(id)
    ended[id] = true
  elseif letter == 'u' then
    return 'joined'
  elseif mode == 'rescue' then
    if not waits then return 'joined' end
    redis.call('HSET', job, 'left', 0)
    let_go(id, take_waiting(id, place), known[4])
  elseif left == 0 and waits then
    let_go(id, take_waiting(id, place), known[4])
  elseif left == 0 and known[5] and (kind == 'f' or kind == 'x') then -- its stopper was retried
    local finished = take_finished(id, place)
    redis.call('HDEL', job, 'stopped')
    let_go(id, string.sub(finished, 1, -ENDING_LENGTH_BYTES - 1 - ending_size(finished)), known[4])
  elseif not counts_as_done and waits then
    end_too(id, place, letter, ending)
  end
  return 'joined'
end

for i = rest, #ARGV, 6 do
  local id = ARGV[i]
  local place, word = place_of(id), nil
  if ended[id] or (place and string.sub(place, 1, 1) == 'm') then
    word = 'again'
  elseif not place then
    word = 'unknown'
  else
    word = join(id, place, unpack(ARGV, i + 1, i + 5))
  end
  words[#words + 1] = word
end
commit()
return table.concat(words, ' ')
