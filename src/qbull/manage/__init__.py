"""Work on jobs and queues that exist: search, bulk actions, live settings, repartitioning."""
