"""What is outside of the platform, for your own machine: a real mail server, and a Slack that can break.

Mail to refused@… is refused for ever, mail to busy@… is put off the first time. http://127.0.0.1:3060/mails shows what has come.
"""

import email
import os
from email import policy
from typing import Any

import uvicorn
from aiosmtpd.controller import Controller
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

mails: list[dict[str, str]] = []
said: list[dict[str, Any]] = []
put_off: set[str] = set()
slack_is_broken = False


class Postbox:
    """Called by the mail server, in a thread of its own."""

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address.startswith("refused@"):
            return "550 there is nobody of that name"
        if address.startswith("busy@") and address not in put_off:
            put_off.add(address)
            return "451 come back later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = email.message_from_bytes(envelope.content, policy=policy.default)
        text = mail.get_content().strip()
        mails.append({"id": mail["Message-ID"], "to": mail["To"], "subject": mail["Subject"], "text": text})
        print("Mail:", mail["To"], "-", mail["Subject"], flush=True)
        return "250 OK"


async def slack(request: Request) -> JSONResponse:
    if request.method == "POST":
        if slack_is_broken:
            return JSONResponse({"error": "out of order"}, 503)
        said.append(await request.json())
        print("Slack:", said[-1]["text"], flush=True)
    return JSONResponse(said)


async def break_slack(request: Request) -> JSONResponse:
    global slack_is_broken
    slack_is_broken = request.url.path.endswith("/break")
    return JSONResponse({"broken": slack_is_broken})


async def show_mails(_: Request) -> JSONResponse:
    return JSONResponse(mails)


web = Starlette(
    routes=[
        Route("/mails", show_mails),
        Route("/slack", slack, methods=["GET", "POST"]),
        Route("/slack/break", break_slack, methods=["POST"]),
        Route("/slack/mend", break_slack, methods=["POST"]),
    ]
)

if __name__ == "__main__":
    postbox = Controller(Postbox(), hostname="127.0.0.1", port=int(os.environ.get("SMTP_PORT", "3025")))
    postbox.start()
    uvicorn.run(web, port=int(os.environ.get("OUTSIDE_PORT", "3060")), log_level="warning")
    postbox.stop()
