"""Compat: the common calls of other libraries, on qbull. What is not common is refused with the name of what to use instead.

Jobs made through these are ordinary jobs. Neither Celery nor RQ is imported, and neither needs to be installed.
"""
