"""Post: a webhook is reached at the address that was looked at, or not at all."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from inbox import Inbox

from qbull.alerts import webhook as module
from qbull.alerts.webhook import NotSent, post_webhook
from qbull.core.alerts import Alerts

LOOPBACK = Alerts(allow=("127.0.0.0/8", "localhost"))


@pytest.fixture
async def inbox() -> AsyncIterator[Inbox]:
    async with Inbox() as inbox:
        yield inbox


async def test_what_is_posted_arrives(inbox: Inbox) -> None:
    await post_webhook(f"{inbox.url}/a/b?c=d", b'{"x": 1}', {"webhook-id": "7"}, LOOPBACK)

    (arrived,) = inbox.posts
    assert (arrived.path, arrived.json, arrived.headers["webhook-id"]) == ("/a/b?c=d", {"x": 1}, "7")
    assert arrived.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ],
)
async def test_internal_hosts_are_refused_however_they_are_written(inbox: Inbox, host: str) -> None:
    port = inbox.url.rpartition(":")[2]

    with pytest.raises(NotSent, match="internal address; name it in QBULL_ALERT_ALLOW"):
        await post_webhook(f"http://{host}:{port}/", b"{}", {}, Alerts())

    assert inbox.connections == 0


async def test_metadata_of_a_cloud_is_refused_although_it_is_allowed() -> None:
    with pytest.raises(NotSent, match="never allowed"):
        await post_webhook("http://169.254.169.254/latest", b"{}", {}, Alerts(allow=("169.254.169.254",)))


async def test_a_public_host_without_tls_is_refused() -> None:
    with pytest.raises(NotSent, match="http sends alerts in the clear"):
        await post_webhook("http://93.184.216.34/", b"{}", {}, Alerts())


async def test_a_name_is_resolved_once_and_refused_if_any_of_its_addresses_is(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(inbox.url.rpartition(":")[2])
    asked: list[str] = []

    async def rebinding(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        answers = ["93.184.216.34", "127.0.0.1"][: len(asked) + 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, port)) for answer in answers]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
    with pytest.raises(NotSent, match=r"127\.0\.0\.1, which is an internal address"):
        await post_webhook(f"https://rebind.example:{port}/", b"{}", {}, Alerts())

    assert asked == ["rebind.example"] and inbox.connections == 0


async def test_redirects_are_not_followed(inbox: Inbox) -> None:
    inbox.answers = ["302 Found"]
    inbox.headers = f"Location: {inbox.url}/elsewhere\r\n"

    with pytest.raises(NotSent, match="answered 302; redirects are not followed"):
        await post_webhook(f"{inbox.url}/", b"{}", {}, LOOPBACK)

    assert len(inbox.posts) == 1


async def test_an_answer_that_is_not_http_is_an_error_and_not_shown() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 secret.internal ESMTP " + b"x" * 100_000)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(
            NotSent, match=r"^127\.0\.0\.1: (its answer is not HTTP|Connection reset by peer)$"
        ):
            await post_webhook(f"http://127.0.0.1:{port}/", b"{}", {}, LOOPBACK)


async def test_who_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WEBHOOK_TIMEOUT_SECONDS", 0.1)
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NotSent, match=r"did not answer within 0\.1 s"):
            await post_webhook(f"http://127.0.0.1:{port}/", b"{}", {}, LOOPBACK)


async def test_nobody_there_is_said_in_one_line() -> None:
    with pytest.raises(NotSent, match=r"^127\.0\.0\.1: "):
        await post_webhook("http://127.0.0.1:1/", b"{}", {}, LOOPBACK)


@pytest.mark.parametrize(("name", "trusted", "said"), [
    ("localhost", True, None),
    ("localhost", False, "unable to get local issuer certificate|self.signed"),
    ("other.example", True, "Hostname mismatch"),
])  # fmt: skip
async def test_a_certificate_must_be_the_hosts_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, trusted: bool, said: str | None
) -> None:
    authority = trustme.CA()
    if trusted:
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
        alerts = Alerts(allow=("localhost",))
        if said is None:
            await post_webhook(url, b"{}", {}, alerts)
        else:
            with pytest.raises(NotSent, match=said):
                await post_webhook(url, b"{}", {}, alerts)
