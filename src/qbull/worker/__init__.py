"""A worker: one actor for each file.

`worker.py` puts them together, `supervisor.py` keeps processes of them alive.
"""
