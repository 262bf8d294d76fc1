"""The settings of the app."""

import os

from qbull.compat.celery.schedules import crontab

broker_url = os.environ["SHOP_REDIS"]
result_backend = os.environ["SHOP_REDIS"]
result_expires = 3600
timezone = "Europe/Madrid"
task_acks_late = True
task_routes = {"shop.tasks.send_*": {"queue": "mail"}}
worker_prefetch_multiplier = 1
beat_schedule = {
    "nightly-report": {
        "task": "shop.tasks.report",
        "schedule": crontab(hour=3, minute=30),
        "args": ["all"],
    },
}
