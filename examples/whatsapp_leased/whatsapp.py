"""WhatsApp messages: in each partition one at a time, in the order in which they were written."""

import os
import time
from pathlib import Path

import config

import qbull

CHATS = Path("chats")
"""A file for each phone number. Here messages end up; a real system calls WhatsApp's API instead."""

app = qbull.App()
whatsapp = app.queue("WHATSAPP", partitions=config.PARTITIONS, order="partition", concurrency=64)


@whatsapp.task(key="{phone}")
def send(phone: str, text: str) -> str:
    time.sleep(config.SECONDS)
    CHATS.mkdir(exist_ok=True)
    with (CHATS / f"{phone}.txt").open("a") as chat:
        chat.write(f"{text}\n")
    return os.environ.get("POD", "")
