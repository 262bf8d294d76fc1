"""WhatsApp messages: a topic of TOTAL_PARTITIONS partitions, the phone number is the partition key.

`INSTANCE_ID=3 INSTANCE_COUNT=8 qbull worker whatsapp:app` is one pod of eight: it reads the partitions with partition % 8 == 3.
"""

import os
import time
from pathlib import Path

import qbull

CHATS = Path("chats")
"""A file for each phone number. Here messages end up; a real system calls WhatsApp's API instead."""

SECONDS = float(os.environ.get("WHATSAPP_SECONDS", "0.01"))
"""How long the API takes for a message."""

app = qbull.App()
whatsapp = app.queue("WHATSAPP", order="partition", concurrency=64)


@whatsapp.task(key="{phone}")
def send(phone: str, text: str) -> str:
    time.sleep(SECONDS)
    CHATS.mkdir(exist_ok=True)
    with (CHATS / f"{phone}.txt").open("a") as chat:
        chat.write(f"{text}\n")
    return os.environ.get("INSTANCE_ID", "0")
