"""Send: bring a message to one place. What runs a job of `qbull.alerts`, and what a test does."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from importlib.util import find_spec

import msgspec

from qbull.alerts.message import MessageSender, title_of, to_json, to_slack, to_text
from qbull.alerts.webhook import NotSent, post_webhook
from qbull.core.alerts import Alerts, Destination
from qbull.core.ids import new_id
from qbull.core.problems import AlertNotification, Problem, ProblemNotice


async def send_message(
    id: str, message: AlertNotification, to: Destination, alerts: Alerts, app: str
) -> None:
    """Raises NotSent where it did not arrive. `id` is the same for every attempt."""
    voice = MessageSender(app, alerts.link)
    match to.kind:
        case "slack":
            await post_webhook(to.url, msgspec.json.encode(to_slack(message, voice)), {}, alerts)
        case "webhook":
            body = msgspec.json.encode(to_json(message, voice))
            await post_webhook(to.url, body, webhook_headers(id, body, alerts.secret), alerts)
        case "other":
            await asyncio.to_thread(_through_apprise, to, title_of(message, voice), to_text(message, voice))


async def send_test_messages(alerts: Alerts, app: str) -> list[tuple[Destination, str | None]]:
    """Send a test to each place; gives why it did not arrive there, None where it did."""
    at = int(time.time() * 1000)
    problem = Problem("failed", "test", "test", reason="this is a test; nothing has failed")
    message = AlertNotification(at, [ProblemNotice("firing", problem, at)])
    tried: list[tuple[Destination, str | None]] = []
    for to in alerts.destinations:
        try:
            await send_message(new_id(0), message, to, alerts, app)
            tried.append((to, None))
        except NotSent as error:
            tried.append((to, str(error)))
    return tried


def webhook_headers(id: str, body: bytes, secret: str | None, at: int | None = None) -> dict[str, str]:
    """The headers of Standard Webhooks; without a secret those that say which message it is."""
    moment = str(int(time.time()) if at is None else at)
    headers = {"webhook-id": id, "webhook-timestamp": moment}
    if secret is None:
        return headers
    signed = hmac.new(_key(secret), f"{id}.{moment}.".encode() + body, hashlib.sha256).digest()
    return {**headers, "webhook-signature": f"v1,{base64.b64encode(signed).decode()}"}


def missing_package(to: Destination) -> str | None:
    """What this process lacks for sending there."""
    if to.kind == "other" and find_spec("apprise") is None:
        return f'{to.host}:// needs apprise; pip install "qbull[alerts]"'
    return None


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _through_apprise(to: Destination, title: str, text: str) -> None:
    lacks = missing_package(to)
    if lacks is not None:
        raise NotSent(lacks)
    import apprise

    way = apprise.Apprise()
    if not way.add(to.url):
        raise NotSent(f"{to.host}://: apprise does not understand this address; see its documentation")
    if not way.notify(body=text, title=title):
        raise NotSent(f"{to.host}://: apprise could not send it; it logs why")
