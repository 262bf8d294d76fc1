"""Config warnings: log what is wrong with the settings of a queue's workers.

A worker that starts logs at once what conflicts with the workers that are there. A conflict that appears
later is logged only after it has lasted a while: every rolling restart passes through such states, and so
does every start of many workers at once. One process of a pod logs each conflict once while it lasts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from qbull.config import QueueSettings
from qbull.core.config_warnings import config_warnings
from qbull.core.layout import Generation
from qbull.store.verbs.workers import RegisteredWorker, settings_digest, worker_declarations

log = logging.getLogger("qbull.worker")

CONFIG_WARNING_DELAY_SECONDS = 60.0


class ConfigWarningLogger:
    """Warnings for one queue. Call `look` with each new version of the worker registry."""

    def __init__(self, settings: QueueSettings, worker: str, *, speaks: bool) -> None:
        self._settings = settings
        self._digest = settings_digest(settings)
        self._worker = worker
        self._speaks = speaks
        self._since: dict[str, float] = {}
        self._said: set[str] = set()
        self._starting = True

    def look(self, generation: Generation, members: Mapping[str, RegisteredWorker]) -> None:
        there = worker_declarations(members, self._settings.name, generation)
        if not self._speaks or not any(seat.worker == self._worker for seat in there):
            return
        now = time.monotonic()
        found = {
            warning.kind: warning for warning in config_warnings(generation.partitions, self._digest, there)
        }
        self._since = {kind: self._since.get(kind, now) for kind in found}
        self._said &= found.keys()
        for kind, warning in found.items():
            at_once = self._starting and kind != "unread"  # the others may be starting too
            if kind not in self._said and (
                at_once or now - self._since[kind] >= CONFIG_WARNING_DELAY_SECONDS
            ):
                self._said.add(kind)
                log.warning('queue "%s": %s', self._settings.name, warning.line)
        self._starting = False
