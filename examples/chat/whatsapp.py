"""WhatsApp messages: in each partition one at a time, in the order in which they were written.

The phone number is the partition key. `INSTANCE_ID=3 INSTANCE_COUNT=8 qbull worker whatsapp:app` is one pod of
eight that reads the partitions with partition % 8 == 3. `python run_workers.py` is a pod that takes free ones.
"""

import os
import time
from pathlib import Path
from typing import Annotated

import config
from msgspec import Meta

import qbull

CHATS = Path("chats")
"""A file for each phone number. Messages end up here; a real system calls WhatsApp's API instead."""

Phone = Annotated[str, Meta(pattern=r"^\+[0-9]{6,15}$")]
Text = Annotated[str, Meta(min_length=1, max_length=4096)]
"""The bounds of WhatsApp. A call outside of them is refused when it is enqueued."""

app = qbull.App()
whatsapp = app.queue("WHATSAPP", partitions=config.PARTITIONS, order="partition", concurrency=64)


@whatsapp.task(key="{phone}")
def send(phone: Phone, text: Text) -> str:
    """Send a message; returns the pod that did."""
    time.sleep(config.SECONDS)
    CHATS.mkdir(exist_ok=True)
    with (CHATS / f"{phone}.txt").open("a") as chat:
        chat.write(f"{text}\n")
    return os.environ.get("POD") or os.environ.get("INSTANCE_ID") or ""
