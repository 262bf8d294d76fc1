"""Drop-in APIs: the common calls of Celery and RQ on qbull.

Other calls are refused, and the error names the replacement. Jobs made through these APIs are ordinary jobs.
Neither Celery nor RQ is imported, and neither needs to be installed.
"""
