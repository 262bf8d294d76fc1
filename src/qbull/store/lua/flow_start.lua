-- flow_start: add the first jobs of a new flow to a partition.
-- KEYS  base
-- USES  flow_add
-- ARGV  token limit:int flow left  … id when record given mode many told …
--       left: the jobs to add next, or ''; given: 1 if the id was chosen by the caller, 2 if another
--       partition has a job with that id
--       many: the number of its dependencies, followed by a letter (lib/flow.lua) and the details of each
-- GIVES "planted" and the entry of what is left, or "known"; the partition's mark if it is closed and accepts
--       no other jobs
local word = add_flow_jobs(true)
commit()
return word
