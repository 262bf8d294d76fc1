"""Small bridges to web frameworks. Each is a module that imports its framework, and nothing else of qbull imports it."""
