"""The worker's processes: the supervisor, heartbeats and reclaiming, the crash board, memory."""
