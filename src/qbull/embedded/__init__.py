"""The Valkey that qbull starts itself: server, watchdog, the binary and its allocator, the disk."""
