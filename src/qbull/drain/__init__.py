"""Drain: move the jobs that wait in another system into queues of qbull, each exactly once.

The steps of a job: read it from the old server (celery.py, rq.py, bullmq.py, by_hand.py); check it against
its task (deliver.py); set it aside on the old server in one step, so that no old worker can take it
(source.py); enqueue it, which the new server remembers for a week; and delete it on the old server (move.py).
A drain that is killed in between continues with the jobs that are set aside. Jobs that cannot be moved stay
in place.
"""
