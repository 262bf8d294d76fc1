-- queue_register: a queue is one of the app's. A script for the same reason as register.
-- KEYS  queues
-- FLAGS allow-oom
-- ARGV  queue
redis.call('SADD', queues, queue)
return 1
