"""What a request may smuggle in or pretend: lengths that contradict each other, addresses of others, secrets in addresses."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from web import ADMIN, PASSWORD, Person, Web, make_admin, make_nobody, open_web  # noqa: F401 - fixtures

from qbull.api.table import TABLE
from qbull.store.verbs import sessions


async def spoken(web: Web, request: bytes) -> bytes:
    """What the server says to these bytes before it hangs up, or waits for more."""
    place = urlsplit(web.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    await writer.wait_closed()
    return answer


INNER = b"GET /api/queues/stats HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ADMIN.encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 3\r\nContent-Length: 5\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 1e3\r\n",
    ],
)
async def test_a_request_of_two_lengths_hides_no_second_one(web: Web, head: bytes) -> None:
    start = b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

    answer = await spoken(web, start + head + b"\r\n0\r\n\r\n" + INNER)

    assert b"200 OK" not in answer and b'"queues"' not in answer


async def test_nobody_counts_as_another_address(web: Web) -> None:
    for n in range(sessions.MAX_LOGIN_ATTEMPTS):
        somebody = await web.person(
            **{"x-forwarded-for": f"203.0.113.{n}", "forwarded": f"for=203.0.113.{n}"}
        )
        await somebody.refused(401, "POST", "/api/login", {"password": "wrong"})

    last = await web.person(**{"x-forwarded-for": "198.51.100.1"})
    assert (await last.ask("POST", "/api/login", {"password": PASSWORD})).status_code == 429


def test_no_secret_has_a_place_in_an_address() -> None:
    fields = {field for endpoint in TABLE for field in endpoint.query.__struct_fields__}

    assert not {field for field in fields if any(word in field for word in ("token", "password", "secret"))}


async def test_a_token_in_an_address_opens_no_door(nobody: Person) -> None:
    for query in (f"token={ADMIN}", f"access_token={ADMIN}", f"authorization=Bearer%20{ADMIN}"):
        assert (await nobody.client.get(f"/api/queues/stats?{query}")).status_code == 401


async def test_answers_are_kept_nowhere(admin: Person, nobody: Person) -> None:
    for person in (admin, nobody):
        for path in ("/api/queues/stats", "/api/me", "/api/audit"):
            assert "no-store" in (await person.client.get(path)).headers["cache-control"]
