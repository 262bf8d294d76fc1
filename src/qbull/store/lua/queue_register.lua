-- queue_register: add a queue to those of the app. It is a script for the same reason as register.
-- KEYS  queues
-- FLAGS allow-oom
-- ARGV  queue
redis.call('SADD', queues, queue)
return 1
