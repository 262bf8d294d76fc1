-- flow_continue: add the rest of a flow to a partition. A full server accepts it too: a started flow frees
-- its memory only when it ends.
-- KEYS  base
-- USES  flow_add
-- FLAGS allow-oom
-- ARGV  token limit:int flow left  … id when record given mode many told …
--       the arguments and the answer are those of flow_start
local word = add_flow_jobs(false)
commit()
return word
