-- flow_start: the first jobs of a new flow come into a partition.
-- KEYS  base
-- USES  flow_add
-- ARGV  token limit:int flow left  … id when record given mode many told …
--       left: the jobs that are to be planted next, or ''; given: 1 where the id was chosen by somebody, 2
--       where another partition has it
--       many: how many it waits for, and what is known of each
-- GIVES "planted" and the entry of what is left, or "known"; the partition's mark where it is closed and
--       takes no others
local word = add_flow_jobs(true)
commit()
return word
