"""The OpenAPI document and the metrics that the API serves are as recorded. Their prose may change."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
from goldens import compare

import qbull

TOKEN = "a token of an administrator"
PROSE = ("summary", "description")


async def test_the_openapi_document_is_as_recorded(app: qbull.App) -> None:
    document = (await _get(app, "/api/openapi.json")).json()
    document["info"]["version"] = "any"
    compare("openapi.json", _shown(_without_prose(document)))


async def test_metrics_are_as_recorded(app: qbull.App) -> None:
    queue = app.queue("work", retry=qbull.Retry(attempts=2, backoff="fixed", delay=0))

    @queue.task
    async def fail() -> None:
        raise ValueError("no")

    await fail.enqueue()
    async with app.worker() as worker:
        await worker.drain()
    text = (await _get(app, "/metrics")).text

    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    labels = {
        name: {
            label
            for labels in re.findall(rf"^{name}\w*{{(.*)}}", text, re.MULTILINE)
            for label in _labels(labels)
        }
        for name, _ in kinds
    }
    compare(
        "metrics.txt",
        "\n".join(f"{name} {kind} {' '.join(sorted(labels[name]))}".rstrip() for name, kind in sorted(kinds)),
    )


def _labels(text: str) -> list[str]:
    return re.findall(r'(\w+)="[^"]*"', text)


async def _get(app: qbull.App, path: str) -> httpx.Response:
    api = httpx.ASGITransport(qbull.asgi(app, qbull.Access(admin_token=TOKEN)))
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=api, base_url="http://127.0.0.1", headers=headers) as client:
        answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer


def _without_prose(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_prose(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        name: _without_prose(value)
        for name, value in part.items()
        if not (name in PROSE and isinstance(value, str))
    }


def _shown(part: Any, indent: str = "", room: int = 100) -> str:
    """JSON in which every part that fits into one line is in one line, so that diffs are short."""
    line = json.dumps(part, sort_keys=True, ensure_ascii=False)
    if len(line) <= room or not isinstance(part, dict | list):
        return line
    inner = indent + " "
    if isinstance(part, list):
        shown = [_shown(one, inner) for one in part]
        return "[\n" + ",\n".join(inner + one for one in shown) + f"\n{indent}]"
    shown = [f"{json.dumps(name)}: {_shown(part[name], inner)}" for name in sorted(part)]
    return "{\n" + ",\n".join(inner + one for one in shown) + f"\n{indent}}}"
