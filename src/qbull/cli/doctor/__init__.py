"""`qbull doctor`: checks of the server, the queues, the schedules, durability and alerts."""
