"""The REST API, with the extra `qbull[api]`: the only room that knows the web framework."""
