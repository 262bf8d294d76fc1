-- flow_continue: what is left of a flow comes into a partition. A full server takes it too: what was begun
-- can only go when it ends.
-- KEYS  base
-- USES  flow_add
-- FLAGS allow-oom
-- ARGV  token limit:int flow left  … id when record given mode many told …
--       all of it as in flow_start
-- GIVES what flow_start does
local word = add_flow_jobs(false)
commit()
return word
