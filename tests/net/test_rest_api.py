"""The OpenAPI document that the API serves is the one that was recorded. Its prose is not part of it."""

from __future__ import annotations

import json
from typing import Any

import httpx
from goldens import compare

import qbull

PROSE = ("summary", "description")


async def test_the_openapi_document_is_as_recorded(app: qbull.App) -> None:
    api = httpx.ASGITransport(qbull.asgi(app, qbull.Access(admin_token="a token of an administrator")))
    async with httpx.AsyncClient(transport=api, base_url="http://127.0.0.1") as client:
        answer = await client.get("/api/openapi.json")

    document = answer.json()
    document["info"]["version"] = "any"
    compare("openapi.json", _shown(_without_prose(document)))


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
    """JSON in which a part that fits is in one line, so that a diff is short and still says where it is."""
    line = json.dumps(part, sort_keys=True, ensure_ascii=False)
    if len(line) <= room or not isinstance(part, dict | list):
        return line
    inner = indent + " "
    if isinstance(part, list):
        shown = [_shown(one, inner) for one in part]
        return "[\n" + ",\n".join(inner + one for one in shown) + f"\n{indent}]"
    shown = [f"{json.dumps(name)}: {_shown(part[name], inner)}" for name in sorted(part)]
    return "{\n" + ",\n".join(inner + one for one in shown) + f"\n{indent}}}"
