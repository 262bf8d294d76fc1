"""Observability: logs, metrics and traces. Nothing in here changes a job."""
