-- grow: what is left of a flow comes into a partition. A full server takes it too: what was begun can only go when it ends.
-- KEYS  base
-- USES  plant
-- FLAGS allow-oom
-- ARGV  token limit:int flow left  … id when record given mode many told …
--       all of it as in plant
-- GIVES what plant does
return plant(false)
