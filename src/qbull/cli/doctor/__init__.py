"""`qbull doctor`: checks of the server, the queues, their health, the schedules, durability and alerts."""
