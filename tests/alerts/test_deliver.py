"""Send: a message as each kind of place wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from qbull.alerts.deliver import send_message
from qbull.alerts.message import MessageSender, to_slack, to_text
from qbull.alerts.webhook import NotSent
from qbull.core.alerts import Alerts
from qbull.core.problems import AlertNotification, Problem, ProblemNotice

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:apprise", "ignore:'imghdr'")

NASTY = "<!channel> `*bold*` ```" + "x" * 300 + "\n\x1b[31m& <https://evil.example|click>"


def message(*problems: Problem, more: int = 0) -> AlertNotification:
    return AlertNotification(
        1_770_000_000_000, [ProblemNotice("firing", each, 1_770_000_000_000) for each in problems], more
    )


def test_nothing_that_a_job_says_can_steer_slack() -> None:
    said = to_slack(
        message(Problem("failed", "email", NASTY, NASTY, NASTY)), MessageSender("app", "https://x.example")
    )

    text = msgspec.json.encode(said).decode()
    assert "<!channel>" not in text and "<https://evil" not in text and "\\u001b" not in text
    assert all(len(block.get("text", {}).get("text", "")) <= 3000 for block in said["blocks"])
    reason = next(block["text"]["text"] for block in said["blocks"] if "```" in str(block))
    assert reason.count("```") == 2


def test_the_largest_message_is_one_that_slack_takes() -> None:
    many = [Problem("failed", f"{n}" * 100, "t" * 100, "j" * 200, "r" * 300, 10**6) for n in range(10)]

    said = to_slack(message(*many, more=490), MessageSender("a" * 100, "https://jobs.example.com"))

    assert len(said["blocks"]) <= 50
    assert len(said["blocks"][0]["text"]["text"]) <= 150
    for block in said["blocks"]:
        assert len(block.get("fields", [])) <= 10
        assert all(len(field["text"]) <= 2000 for field in block.get("fields", []))
        assert len(block.get("text", {}).get("text", "")) <= 3000


def test_text_has_a_command_where_there_is_no_page() -> None:
    text = to_text(message(Problem("failed", "email", "verify", "j1", "no")), MessageSender("app"))

    assert 'FIRING queue "email": 1 job failed permanently' in text
    assert text.endswith("qbull job email j1")


class Mailbox:
    """A real SMTP server on loopback that keeps what it is given."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            word = line[:4].upper()
            if word == b"DATA":
                writer.write(b"354 go on\r\n")
                self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
            writer.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                break
        writer.close()


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    mailbox = Mailbox()
    async with await asyncio.start_server(mailbox.serve, "127.0.0.1", 0) as server:
        mailbox.port = server.sockets[0].getsockname()[1]
        yield mailbox


async def test_e_mail_goes_through_apprise(mailbox: Mailbox) -> None:
    url = f"mailto://127.0.0.1:{mailbox.port}?from=qbull@example.com&to=ops@example.com&format=text"
    alerts = Alerts(urls=(url,))

    await send_message(
        "1", message(Problem("failed", "email", "verify", "j1", "no")), alerts.destinations[0], alerts, "app"
    )

    (mail,) = mailbox.mails
    assert "To: ops@example.com" in mail and "job failed permanently" in mail


async def test_what_apprise_does_not_understand_or_cannot_send_is_an_error() -> None:
    for url, said in (
        ("nonsense://x", "does not understand"),
        ("mailto://127.0.0.1:1?from=qbull@example.com&to=ops@example.com", "could not send"),
    ):
        alerts = Alerts(urls=(url,))
        with pytest.raises(NotSent, match=said):
            await send_message("1", message(Problem("lost")), alerts.destinations[0], alerts, "app")
