"""The queue `slack`: what the platform says to its team. Dead letters are said by qbull itself, in the same channel."""

import json
import os
import urllib.request

from queues import slack

import qbull

WEBHOOK = os.environ.get("SLACK_WEBHOOK_URL", "")


@slack.task(name="alert")
def alert(text: str) -> None:
    if not WEBHOOK:
        raise qbull.Fail("SLACK_WEBHOOK_URL is not set")
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(WEBHOOK, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20):
        pass
