"""The pure rules: no I/O, no clock, no event loop. Everything here is tested without a server."""
