"""A real Firefox, driven by WebDriver BiDi: Debian's, without a driver program. It does what a smoke test needs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

NAMES = ("firefox-esr", "firefox")
START_SECONDS = 40.0
ANSWER_SECONDS = 30.0
PREFERENCES = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "remote.prefs.recommended": True,
    "toolkit.telemetry.enabled": False,
    "intl.accept_languages": "en-GB",
}
"""A test asks nobody on the network but the server that it tests."""


def path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class FirefoxTab:
    """One tab. Errors of its console are kept in `wrong`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._listening = asyncio.create_task(self._listen())
        self.context = ""
        self.wrong: list[str] = []

    async def open(self) -> None:
        await self.send("session.new", {"capabilities": {}})
        await self.send("session.subscribe", {"events": ["log.entryAdded"]})
        tree = await self.send("browsingContext.getTree", {})
        self.context = tree["contexts"][0]["context"]

    async def go(self, url: str) -> None:
        await self.send(
            "browsingContext.navigate", {"context": self.context, "url": url, "wait": "interactive"}
        )

    async def run(self, script: str) -> Any:
        """The value of an expression, as JSON."""
        command = {
            "expression": f"(async () => JSON.stringify(await ({script})))()",
            "target": {"context": self.context},
            "awaitPromise": True,
        }
        told = await self.send("script.evaluate", command)
        assert told["type"] == "success", told["exceptionDetails"]["text"]
        return json.loads(told["result"].get("value", "null"))

    async def until(self, script: str) -> Any:
        """Wait until an expression is true, and give it."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while not (found := await self.run(script)):
                await asyncio.sleep(0.05)
        return found

    async def click(self, script: str) -> None:
        """Click the element that an expression gives, with the mouse."""
        at = await self.run(
            f"(() => {{ const one = {script}; one.scrollIntoView({{block: 'center'}});"
            " const at = one.getBoundingClientRect(); return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        x, y = (round(number) for number in at)
        moves = [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        await self._perform({"type": "pointer", "id": "mouse", "actions": moves})

    async def type(self, text: str) -> None:
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        await self._perform({"type": "key", "id": "keys", "actions": keys})

    async def _perform(self, source: dict[str, Any]) -> None:
        await self.send("input.performActions", {"context": self.context, "actions": [source]})

    async def send(self, method: str, params: dict[str, Any]) -> Any:
        number = len(self._asked)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        self._write(json.dumps({"id": number, "method": method, "params": params}).encode())
        async with asyncio.timeout(ANSWER_SECONDS):
            told = await answer
        assert told["type"] == "success", (method, told)
        return told["result"]

    async def close(self) -> None:
        self._listening.cancel()
        self._writer.close()

    def _write(self, payload: bytes) -> None:
        """A text frame, masked as clients must."""
        size, mask = len(payload), os.urandom(4)
        assert size < 0x10000
        length = struct.pack("!B", 0x80 | size) if size < 126 else struct.pack("!BH", 0x80 | 126, size)
        masked = bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))
        self._writer.write(b"\x81" + length + mask + masked)

    async def _listen(self) -> None:
        text = b""
        while True:
            first, second = await self._reader.readexactly(2)
            size = second & 0x7F
            if size >= 126:
                form = "!H" if size == 126 else "!Q"
                [size] = struct.unpack(form, await self._reader.readexactly(struct.calcsize(form)))
            payload = await self._reader.readexactly(size)
            if first & 0x0F > 1:  # a ping, or the end
                continue
            text += payload
            if first & 0x80:
                told, text = json.loads(text), b""
                self._heard(told)

    def _heard(self, told: dict[str, Any]) -> None:
        if told.get("method") == "log.entryAdded":
            entry = told["params"]
            if entry["level"] == "error":
                self.wrong.append(str(entry["text"]))
        elif told.get("id") is not None:
            self._asked[told["id"]].set_result(told)


@asynccontextmanager
async def open_firefox(folder: Path) -> AsyncIterator[FirefoxTab]:
    """Firefox with a profile of its own in `folder`."""
    lines = [f'user_pref("{name}", {json.dumps(value)});' for name, value in PREFERENCES.items()]
    (folder / "user.js").write_text("\n".join(lines))
    command = [
        str(path()),
        "--headless",
        "--profile",
        str(folder),
        "--remote-debugging-port",
        "0",
        "about:blank",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            port = await _port(process)
        tab = await _connect(port)
        try:
            await tab.open()
            yield tab
        finally:
            await tab.close()
    finally:
        process.kill()
        await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async for line in process.stderr:
        found = re.search(rb"ws://127\.0\.0\.1:(\d+)", line)
        if found:
            return int(found.group(1))
    raise AssertionError("Firefox has ended")


async def _connect(port: int) -> FirefoxTab:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head.splitlines()[0], head
    return FirefoxTab(reader, writer)
