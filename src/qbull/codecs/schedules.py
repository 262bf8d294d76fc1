"""ScheduleCodec: schedules as the server stores them if an app has codecs.

The fields that everybody may read stay as they are, so that every tool can show a schedule. In place of its
arguments there is a text: the whole schedule, protected like any other value. A schedule is opened before a
run starts, and the fields must be those in the text. So nobody without a key can write or change a schedule.
"""

from __future__ import annotations

import base64

import msgspec
from msgspec.structs import replace

from qbull.codecs.chain import CodecChain
from qbull.codecs.context import ValueContext, payload_context
from qbull.core.record import ExtendedBody
from qbull.core.schedule import Schedule, protected_value
from qbull.core.schedule_state import SchedulePlan
from qbull.errors import PayloadError

_decode = msgspec.json.Decoder(Schedule).decode
_UNLIKE_ANY = msgspec.Raw(b"0")
"""Arguments that no schedule has: a definition with them differs from every other one."""


class ScheduleCodec:
    """Protects and opens the schedules of an app."""

    def __init__(self, codecs: CodecChain | None = None) -> None:
        self._codecs = codecs or CodecChain()

    def protect(self, schedule: Schedule) -> Schedule:
        """The schedule as it is stored."""
        if not self._codecs.has_keys:
            return schedule
        protected = self._codecs.protect(_context(schedule), msgspec.json.encode(schedule))
        text = b'"' + base64.b64encode(protected) + b'"'
        return msgspec.structs.replace(schedule, args=msgspec.Raw(text))

    def open(self, stored: Schedule) -> Schedule:
        """The schedule with its arguments. Raises PayloadError if this app must not run it."""
        return self._open(stored)[0]

    def run_payload(self, stored: Schedule, opened: Schedule, id: str, run: ExtendedBody) -> bytes:
        """The payload of a run. The run of an unprotected schedule stays unprotected."""
        if protected_value(stored) is None:
            return bytes(opened.args)
        return self._codecs.protect(payload_context(opened.queue, id, run), bytes(opened.args))

    def opened_plan(self, plan: SchedulePlan) -> SchedulePlan:
        """The plan with opened definitions, to compare them with new ones.

        A definition that this app would store in another way is like no other, so it is written again.
        """
        return replace(plan, code=self._comparable(plan.code), own=self._comparable(plan.own))

    def _comparable(self, stored: Schedule | None) -> Schedule | None:
        if stored is None:
            return None
        try:
            opened, is_current = self._open(stored)
        except PayloadError:
            return msgspec.structs.replace(stored, args=_UNLIKE_ANY)
        if self._codecs.has_keys and not is_current:
            return msgspec.structs.replace(stored, args=_UNLIKE_ANY)
        return opened

    def _open(self, stored: Schedule) -> tuple[Schedule, bool]:
        """The schedule, and whether this app would protect it in the same way."""
        context, protected = _context(stored), protected_value(stored)
        if protected is None:
            opened = self._codecs.open_with_keys(context, bytes(stored.args))
            return stored, self._codecs.protects_like(opened)
        opened = self._codecs.open_with_keys(context, protected)
        try:
            schedule = _decode(opened.content)
        except msgspec.MsgspecError as error:
            raise PayloadError(f'schedule "{stored.name}": it cannot be read: {error}') from None
        if msgspec.structs.replace(stored, args=schedule.args) != schedule:
            raise PayloadError(
                f'schedule "{stored.name}": its fields are not those that were protected; '
                "somebody has changed it"
            )
        return schedule, self._codecs.protects_like(opened)


def _context(schedule: Schedule) -> ValueContext:
    return ValueContext("schedule", schedule.queue, schedule.task, schedule.name)
