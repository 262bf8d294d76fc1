"""Drain: move the jobs that wait in Celery's or RQ's names on a server into queues of qbull, each exactly once.

The way of a job: it is read where it lies and made a letter (celery.py, rq.py); it is checked against the task that it is for
(delivery.py); it is set aside on the old server in one step, so that no old worker can take it as well (shelf.py); it is enqueued,
which the new server remembers whatever becomes of the job; and then it is forgotten on the old one (moving.py). Whoever is killed in
between goes on with what is set aside. What cannot be moved stays where it is.
"""
