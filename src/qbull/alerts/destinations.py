"""Destinations: one object for each kind of address that receives alerts. It sends the messages."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from importlib.util import find_spec
from typing import assert_never

import msgspec

from qbull.alerts.message import MessageSender, title_of, to_json, to_slack, to_text
from qbull.alerts.webhook import NotSent, post_webhook
from qbull.core.alerts import Alerts, Destination, DestinationKind
from qbull.core.problems import AlertNotification


class DestinationType:
    """How to send to one kind of destination."""

    signed = False
    """The receiver can check a signature, if the app has a secret."""

    async def send(
        self, id: str, message: AlertNotification, to: Destination, alerts: Alerts, sender: MessageSender
    ) -> None:
        """Send a message. Raises NotSent if it did not arrive. `id` is the same for every attempt."""
        raise NotImplementedError

    def missing_package(self, to: Destination) -> str | None:
        """The package that this process needs but does not have, with the remedy."""
        return None


class _Slack(DestinationType):
    async def send(
        self, id: str, message: AlertNotification, to: Destination, alerts: Alerts, sender: MessageSender
    ) -> None:
        await post_webhook(to.url, msgspec.json.encode(to_slack(message, sender)), {}, alerts)


class _Webhook(DestinationType):
    signed = True

    async def send(
        self, id: str, message: AlertNotification, to: Destination, alerts: Alerts, sender: MessageSender
    ) -> None:
        body = msgspec.json.encode(to_json(message, sender))
        await post_webhook(to.url, body, webhook_headers(id, body, alerts.secret), alerts)


class _Apprise(DestinationType):
    async def send(
        self, id: str, message: AlertNotification, to: Destination, alerts: Alerts, sender: MessageSender
    ) -> None:
        await asyncio.to_thread(self._notify, to, title_of(message, sender), to_text(message, sender))

    def missing_package(self, to: Destination) -> str | None:
        if find_spec("apprise") is None:
            return f'{to.host}:// needs apprise; pip install "qbull[alerts]"'
        return None

    def _notify(self, to: Destination, title: str, text: str) -> None:
        missing = self.missing_package(to)
        if missing is not None:
            raise NotSent(missing)
        import apprise

        way = apprise.Apprise()
        if not way.add(to.url):
            raise NotSent(f"{to.host}://: apprise does not understand this address; see its documentation")
        if not way.notify(body=text, title=title):
            raise NotSent(f"{to.host}://: apprise could not send it; it logs why")


_SLACK, _WEBHOOK, _APPRISE = _Slack(), _Webhook(), _Apprise()


def type_of(kind: DestinationKind) -> DestinationType:
    """The object for a kind of destination."""
    match kind:
        case "slack":
            return _SLACK
        case "webhook":
            return _WEBHOOK
        case "other":
            return _APPRISE
        case _:
            assert_never(kind)


def webhook_headers(id: str, body: bytes, secret: str | None, at: int | None = None) -> dict[str, str]:
    """The headers of Standard Webhooks; without a secret only the id and the time of the message."""
    moment = str(int(time.time()) if at is None else at)
    headers = {"webhook-id": id, "webhook-timestamp": moment}
    if secret is None:
        return headers
    signed = hmac.new(_key(secret), f"{id}.{moment}.".encode() + body, hashlib.sha256).digest()
    return {**headers, "webhook-signature": f"v1,{base64.b64encode(signed).decode()}"}


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
