-- next_jobs: jobs leave the heads of lanes that have room for them.
-- NEEDS base limit
-- USES  record_layout record index ready train lane_lists lane
-- COMMIT send_next_jobs
local TRAIN = 256
local TRAIN_BYTES = 262144
local freed = {}

-- Put these jobs, which have one level, back to the head of their list, in order. Their records stay in the
-- index.
local function back_to_lane(lane, ids, from)
  local reversed, n = {}, 0
  for i = #ids, from or 1, -1 do
    n = n + 1
    reversed[n] = ids[i]
  end
  if n == 0 then return end
  local record = records_of({reversed[1]})[1]
  local list = lane_lists.of_job(lane, record)
  redis.call('LPUSH', list, unpack(reversed))
  if list ~= lane_lists.name(lane) then lane_lists.set_level(lane, level_of(record), true) end
end

-- The next jobs of a lane leave their lists, the most urgent ones first. `of_one_level`: only those of the
-- first list that has any.
lane_lists.leave = function(lane, most, of_one_level)
  if lane_lists.levels(lane) == '' then return redis.call('LPOP', base .. 'lane:' .. lane, most) or {} end
  local ids = {}
  for _, list in ipairs(lane_lists.all(lane)) do
    for _, id in ipairs(redis.call('LPOP', list, most - #ids) or {}) do ids[#ids + 1] = id end
    if list ~= lane_lists.name(lane) and redis.call('EXISTS', list) == 0 then
      lane_lists.set_level(lane, string.sub(list, -1), false)
    end
    if #ids == most or (of_one_level and #ids > 0) then break end
  end
  return ids
end

-- From the head of a sequential lane several jobs leave as a train. The size of the first job limits its
-- length.
local function send_train(lane, ids, first)
  local most = math.max(math.floor(TRAIN_BYTES / #first), 1)
  if #ids > most then
    back_to_lane(lane, ids, most + 1)
    for i = #ids, most + 1, -1 do ids[i] = nil end
  end
  if #ids == 1 then
    behind = behind - 1
    add_ready(level_of(first), ids[1], first)
  else
    add_train(level_of(first), lane, ids)
  end
end

-- The lane has room: its next jobs leave at the end of the script.
local function free_lane(lane) freed[#freed + 1] = lane end

local function send_next_jobs()
  if not freed[1] then return end
  write_joining()
  local sending, heads, n = {}, {}, 0
  for i = 1, #freed do
    local lane = freed[i]
    local count = lane_count(lane)
    if count > 0 then
      local limit = #lane == SINGLE_LANE_BYTES and 1 or limit
      local most = TRAIN
      if #lane == SINGLE_LANE_BYTES then
        most = 1 - (count - lane_lists.length(lane))
      elseif limit ~= 1 then
        most = limit > 0 and limit - (count - lane_lists.length(lane)) or TRAIN
      end
      local ids = most > 0 and lane_lists.leave(lane, most, limit == 1) or {}
      if #ids > 0 and limit == 1 and count > #ids and count > #ids + lane_lists.length(lane) then
        back_to_lane(lane, ids) -- the limit was higher before: others of this lane are still outside
      elseif limit == 1 and #ids > 0 then
        n = n + 1
        sending[n], heads[n] = {lane, ids}, ids[1]
      else
        for j = 1, #ids do
          n = n + 1
          sending[n], heads[n] = {lane, {ids[j]}}, ids[j]
        end
      end
    end
  end
  local records = records_of(heads)
  for i = 1, n do send_train(sending[i][1], sending[i][2], records[i]) end
end
