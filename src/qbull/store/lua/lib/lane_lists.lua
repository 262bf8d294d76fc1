-- lane_lists: the lists of jobs that wait behind others of their lane.
--   lane:<lane>          those with the usual priority, and all jobs of a lane with an order
--   lane:<lane>:<level>  those of a lane without an order whose records have RANKED_FLAG
--   ranked               lane → the levels of which it has such a list; only lanes that have one
-- NEEDS base
-- USES  record_layout record
local lane_lists = {ranks = {}} -- one table, because a script has at most 200 local names
-- `ranks` has the levels of a lane and, under '', whether any lane has some.

-- A list of a lane, without the start of its name.
lane_lists.short_name = function(lane, level) return level == '5' and lane or lane .. ':' .. level end

lane_lists.name = function(lane, level)
  return base .. 'lane:' .. (level and lane_lists.short_name(lane, level) or lane)
end

-- The list that a job with this record waits in.
lane_lists.of_job = function(lane, record)
  return lane_lists.name(lane, has_flag(record, RANKED_FLAG) and level_of(record))
end

-- The levels beside the usual one of which a lane has a list, the most urgent first. In a partition without
-- any, this costs one look for a whole script.
lane_lists.levels = function(lane)
  local ranks = lane_lists.ranks
  if ranks[''] == nil then ranks[''] = redis.call('EXISTS', base .. 'ranked') == 1 end
  if not ranks[''] then return '' end
  if not ranks[lane] then ranks[lane] = redis.call('HGET', base .. 'ranked', lane) or '' end
  return ranks[lane]
end

-- The lists of a lane in the order in which its jobs start.
lane_lists.all = function(lane)
  local lists, usual = {}, false
  for level in string.gmatch(lane_lists.levels(lane), '.') do
    if level > '5' and not usual then
      usual = true
      lists[#lists + 1] = lane_lists.name(lane)
    end
    lists[#lists + 1] = lane_lists.name(lane, level)
  end
  if not usual then lists[#lists + 1] = lane_lists.name(lane) end
  return lists
end

lane_lists.length = function(lane)
  if lane_lists.levels(lane) == '' then return redis.call('LLEN', lane_lists.name(lane)) end
  local length = 0
  for _, list in ipairs(lane_lists.all(lane)) do length = length + redis.call('LLEN', list) end
  return length
end
