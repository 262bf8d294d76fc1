"""The REST API: the only room that knows the web framework. Behind the extra `qbull[api]`; nothing below imports it."""
