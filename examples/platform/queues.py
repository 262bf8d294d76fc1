"""The queues. A municipality is a key: each has its share of the mails and files, however much another one sends."""

import os

import qbull

LADDER = qbull.Retry(delays=(1, 5, 15, 60, 300))

app = qbull.App()

email = app.queue(
    "email",
    concurrency=5,
    retry=LADDER,
    timeout=60,
    rate=qbull.Rate(int(os.environ.get("SMTP_PER_SECOND", "10")), per=1),  # more, and the provider bans us
    lane=qbull.Lane(limit=2),
    keep=qbull.Keep(completed_for=3600, failed_for=86400),
    alert=True,
)
slack = app.queue(
    "slack",
    concurrency=10,
    retry=qbull.Retry(attempts=3, backoff="fixed", delay=2),
    alert=False,  # a message to Slack that fails must not lead to another one
)
maintenance = app.queue("maintenance", max_active=1, retry=LADDER, alert=True)
files = app.queue("files", concurrency=2, retry=LADDER, timeout=120, lane=qbull.Lane(limit=1), alert=True)
