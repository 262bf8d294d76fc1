-- index: job id → where it is. Read and written once for a whole batch.
--   r<band><entry>  in a ready stream, waiting or handed over     l  in its lane's list      d  delayed
--   c<entry>  completed      f<entry>  failed      x<entry>  cancelled
local places = {}
local moved = {}

local function look_up(ids)
  for from = 1, #ids, 1000 do
    local some = {unpack(ids, from, math.min(from + 999, #ids))}
    local found = redis.call('HMGET', index, unpack(some))
    for i, id in ipairs(some) do places[id] = found[i] end
  end
end

local function place_of(id)
  if moved[id] ~= nil then return moved[id] end
  return places[id] or false
end

local function put(id, place) moved[id] = place end
local function forget(id) moved[id] = false end

local function in_chunks(command, name, list)
  for from = 1, #list, 2000 do
    redis.call(command, name, unpack(list, from, math.min(from + 1999, #list)))
  end
end

local function write_index()
  local set, gone = {}, {}
  for id, place in pairs(moved) do
    if place then
      set[#set + 1] = id
      set[#set + 1] = place
    else
      gone[#gone + 1] = id
    end
  end
  in_chunks('HSET', index, set)
  in_chunks('HDEL', index, gone)
  moved = {}
end
