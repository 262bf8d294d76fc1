"""Check of a Celery project: what works on qbull, what differs and what must change.

The project is parsed, never imported. All knowledge about Celery comes from the drop-in API itself:
qbull.compat.celery.support.
"""
