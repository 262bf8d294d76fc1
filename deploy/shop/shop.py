"""The app that the files in deploy/ run until you put yours in its place: messages, in order for each phone number.

The number of partitions comes from TOTAL_PARTITIONS.
"""

import asyncio

import qbull

app = qbull.App()
messages = app.queue("messages", order="key", concurrency=20)


@messages.task(key="{phone}")
async def send(phone: str, text: str) -> str:
    await asyncio.sleep(0.01)
    return f"sent to {phone}: {text}"
