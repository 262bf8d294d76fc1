-- train: several jobs of a sequential lane in one ready entry, and how many of them are settled.
-- The entry has one field without a name: the lane's digest, then the ids, one per line. The records stay in
-- the index.
-- `trains` has the entry of each lane's train, and the number of its jobs that are settled: <place>, later
-- <place> <n>. The jobs of a train run in order, so this is also its fence.
-- NEEDS base
-- NAMES trains
-- USES  record_layout index ready
local train_states = {}

local function train_state(lane)
  local state = train_states[lane]
  if state == nil then
    state = redis.call('HGET', trains, lane)
    train_states[lane] = state
  end
  return state
end

local function load_trains(list)
  for from = 1, #list, 2000 do
    local upto = math.min(from + 1999, #list)
    local found = redis.call('HMGET', trains, unpack(list, from, upto))
    for i = from, upto do train_states[list[i]] = found[i - from + 1] end
  end
end

local moved_trains = {}

local function set_train(lane, state)
  train_states[lane] = state
  moved_trains[lane] = state
end

local function write_trains()
  if not next(moved_trains) then return end
  local set, gone = {}, {}
  for lane, state in pairs(moved_trains) do
    if state then
      local n = #set
      set[n + 1], set[n + 2] = lane, state
    else
      gone[#gone + 1] = lane
    end
  end
  in_chunks('HSET', trains, set)
  in_chunks('HDEL', trains, gone)
end

local function add_train(level, lane, ids, above)
  set_train(lane, add_entry(level, '', lane .. table.concat(ids, '\n'), above))
end

-- The number of settled jobs of a train. nil if the lane has another train by now, or none.
local function settled_of(lane, place)
  local state = train_state(lane)
  if state == place then return 0 end
  if state and string.sub(state, 1, #place + 1) == place .. ' ' then
    return tonumber(string.sub(state, #place + 2))
  end
end

-- The ids of a train without the first `n`.
local function ids_of_train(fields, n)
  local ids = {}
  for id in string.gmatch(string.sub(fields[2], KEY_LANE_BYTES + 1), '[^\n]+') do
    n = n - 1
    if n < 0 then ids[#ids + 1] = id end
  end
  return ids
end
