"""Confirm: answer a script only once its writes are as safe as a durability profile asks.

`ConfirmedServer.script` is `Server.script` with that promise; the client sends its enqueues through it.

- Before the first write, after every lost connection and once a minute, the server is checked: can it hold
  the profile? If it cannot, it is refused with a message that says what to set, and nothing is written.
- WAIT and WAITAOF consider only the last write of their own connection. So they follow the script on its
  connection, with a small write in between: an enqueue that finds its ids has written nothing itself.
- They are not sent together with the script. A replica would answer before it has flushed, and again only a
  second later. After the script's answer, most replicas have flushed; if not, they are asked again soon.
- They count any replicas. So ROLE follows, and the connected replicas must be exactly the checked ones.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, assert_never
from weakref import WeakKeyDictionary

import msgspec

from qbull.core.backoff import ExponentialBackoff
from qbull.core.durability import Durability, UnmetRequirement, profile_of, unmet_requirement
from qbull.errors import NotConfirmed, ServerAway, ServerError, ServerRefused
from qbull.store.connection.facts import ReplicaLinks, facts_of, links_in
from qbull.store.connection.scripts import script
from qbull.store.connection.server import CommandArgument, Conversation, NoScript, Server
from qbull.store.names import CONFIRM_MARK, CONFIRM_MARK_SECONDS

CONFIRM_TIMEOUT_SECONDS = 10.0
"""How long to wait for the replicas to confirm a write."""
PROFILE_CHECK_TTL_SECONDS = 60.0
"""How long a check of the servers is valid."""
WAIT_SLICE_SECONDS = 0.5
"""How long one WAIT lasts. Then primary and connected replicas are checked."""
PROFILE_RECHECK_SECONDS = 0.1
"""Pause between two checks of servers that do not hold the profile."""
WAITAOF_BACKOFF = ExponentialBackoff(first_seconds=0.002, max_seconds=0.064)
"""Pauses between two WAITAOFs."""


class ProfileCheck(msgspec.Struct, frozen=True):
    endpoint: tuple[int, str, int]
    at: float
    links: ReplicaLinks


class FailedCheck(msgspec.Struct, frozen=True):
    endpoint: tuple[int, str, int]
    ended_at: float
    unmet: UnmetRequirement


class ConfirmedServer:
    """A server with one durability profile."""

    def __init__(self, server: Server, durability: Durability) -> None:
        self.durability = durability
        self._profile = profile_of(durability)
        self.waits = self._profile.waits_for_replicas
        self._server = server
        self._has_held = False
        self._checks: WeakKeyDictionary[Server, ProfileCheck] = WeakKeyDictionary()
        self._failed_checks: WeakKeyDictionary[Server, FailedCheck] = WeakKeyDictionary()
        self._checking: WeakKeyDictionary[Server, asyncio.Lock] = WeakKeyDictionary()

    async def script(self, name: str, key: str, *args: CommandArgument) -> Any:
        """Run a verb and answer when its writes are confirmed.

        Raises NotConfirmed if it ran but they are not.
        """
        verb = script(name)
        try:
            return await self._run(key, "EVALSHA", verb.digest, 1, key, *args)
        except NoScript:
            return await self._run(key, "EVAL", verb.source, 1, key, *args)

    async def try_script(self, name: str, key: str, *args: CommandArgument) -> tuple[Any, bool]:
        """Run a verb in any case, and wait only a moment for its confirmation.

        Returns the answer, and whether its writes are confirmed.
        """
        verb = script(name)
        try:
            return await self._server.converse(
                key, partial(self._run_and_try, key, ("EVALSHA", verb.digest, 1, key, *args))
            )
        except NoScript:
            return await self._server.converse(
                key, partial(self._run_and_try, key, ("EVAL", verb.source, 1, key, *args))
            )

    async def confirm(self, *keys: str) -> None:
        """Confirm earlier writes to the servers that have these keys.

        Raises ServerAway if they may be lost.
        """
        if not self.waits:
            return
        for key in keys:
            try:
                await self._run(key, "PING")
            except NotConfirmed as error:
                raise ServerAway(error.fact) from None

    async def read(self, key: str, *command: CommandArgument) -> Any:
        """Run a command that reads, and answer when everything that it has seen is confirmed.

        Raises ServerAway if that is not the case within a moment.
        """
        run = partial(self._run_and_confirm, key, command, timeout=0.0)
        try:
            return await self._server.converse(key, run)
        except NotConfirmed as error:
            raise ServerAway(error.fact) from None

    async def _run(self, key: str, *command: CommandArgument) -> Any:
        run = partial(self._run_and_confirm, key, command, timeout=CONFIRM_TIMEOUT_SECONDS)
        return await self._server.converse(key, run)

    async def _run_and_confirm(
        self,
        key: str,
        command: tuple[CommandArgument, ...],
        conversation: Conversation,
        timeout: float,
    ) -> Any:
        links = await self._check_profile(conversation)
        if isinstance(links, UnmetRequirement):
            raise self._refusal(conversation.server, links)
        if not self.waits:
            return await conversation.call(*command)
        reply = await self._run_with_mark(key, command, conversation)
        await self._wait(conversation, links, timeout)
        return reply

    async def _run_and_try(
        self, key: str, command: tuple[CommandArgument, ...], conversation: Conversation
    ) -> tuple[Any, bool]:
        if not self.waits:
            return await conversation.call(*command), True
        reply = await self._run_with_mark(key, command, conversation)
        links = await self._check_profile(conversation)
        if isinstance(links, UnmetRequirement):
            return reply, False
        try:
            await self._wait(conversation, links, 0.0)
        except NotConfirmed:
            return reply, False
        return reply, True

    @staticmethod
    async def _run_with_mark(
        key: str, command: tuple[CommandArgument, ...], conversation: Conversation
    ) -> Any:
        mark = ("EVAL", script("set_flag").source, 1, key + CONFIRM_MARK, CONFIRM_MARK_SECONDS)
        await conversation.send(command, mark)
        reply = await conversation.receive()
        await conversation.receive()
        return reply

    async def _wait(self, conversation: Conversation, links: ReplicaLinks, timeout: float) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            is_last = clock() > deadline
            count, connected = await self._ask(conversation, self._profile.confirmations(len(links)))
            if count >= self._profile.confirmations(len(links)) and connected == links:
                return
            fact = f"{count} of {len(links)} replicas have it"
            if connected != links:
                checked = await self._check_profile(conversation, anew=True)
                if isinstance(checked, UnmetRequirement):
                    fact = checked.fact
                    await asyncio.sleep(PROFILE_RECHECK_SECONDS)
                else:
                    links = checked
            if conversation.is_closed:
                raise ServerAway(
                    f"{conversation.server.address.shown}: another server has become the primary"
                )
            if is_last:
                raise NotConfirmed(f"{conversation.server.address.shown}: {fact} after {timeout:g} s")

    async def _ask(self, conversation: Conversation, need: int) -> tuple[int, ReplicaLinks]:
        """How many replicas have the write after a short wait, and which replicas are connected."""
        match self._profile.replica_copy:
            case "none":
                return 0, links_in(await conversation.call("ROLE"))
            case "memory":
                await conversation.send(("WAIT", need, int(WAIT_SLICE_SECONDS * 1000)), ("ROLE",))
                return await conversation.receive(), links_in(await conversation.receive())
            case "disk":
                return await self._wait_for_disks(conversation, need)
            case _:
                assert_never(self._profile.replica_copy)

    async def _wait_for_disks(self, conversation: Conversation, need: int) -> tuple[int, ReplicaLinks]:
        """Ask repeatedly: a server checks its clock only when a command arrives."""
        clock = asyncio.get_running_loop().time
        end, open_questions = clock() + WAIT_SLICE_SECONDS, 0
        pauses = WAITAOF_BACKOFF.delays()
        pause = next(pauses)
        while True:
            await conversation.send(("WAITAOF", 1, need, 1), ("ROLE",))
            open_questions += 1
            answer = await conversation.receive(within=pause if clock() < end else None)
            while answer is not None:
                links = links_in(await conversation.receive())
                open_questions -= 1
                if (answer[0] and answer[1] >= need) or clock() > end:
                    for _ in range(2 * open_questions):
                        await conversation.receive()
                    return (answer[1] if answer[0] else 0), links
                answer = await conversation.receive(within=pause) if open_questions else None
            pause = next(pauses)

    async def _check_profile(
        self, conversation: Conversation, *, anew: bool = False
    ) -> ReplicaLinks | UnmetRequirement:
        """The replicas that must confirm, or the requirement that this server does not meet.

        A check may take seconds, while a replica does not answer. All callers that wait for it share its
        result.
        """
        clock = asyncio.get_running_loop().time
        came = clock()
        oldest = came if anew else came - PROFILE_CHECK_TTL_SECONDS
        check = self._checks.get(conversation.server)
        if check is not None and check.endpoint == conversation.endpoint and check.at >= oldest:
            return check.links
        async with self._checking.setdefault(conversation.server, asyncio.Lock()):
            check = self._checks.get(conversation.server)
            if check is not None and check.endpoint == conversation.endpoint and check.at >= oldest:
                return check.links  # another task has checked while we waited
            failed = self._failed_checks.get(conversation.server)
            if failed is not None and failed.endpoint == conversation.endpoint and failed.ended_at > came:
                return failed.unmet
            started_at = clock()
            facts = await facts_of(conversation, replicas=self.waits)
            unmet = unmet_requirement(self.durability, facts)
            endpoint = conversation.endpoint
            if unmet is not None:
                self._checks.pop(conversation.server, None)
                self._failed_checks[conversation.server] = FailedCheck(endpoint, clock(), unmet)
                return unmet
            self._has_held = True
            self._checks[conversation.server] = ProfileCheck(endpoint, started_at, facts.links)
            return facts.links

    def _refusal(self, server: Server, unmet: UnmetRequirement) -> ServerError:
        """ServerAway if the profile may soon hold, because it has held before or a replica is down.

        Otherwise ServerRefused.
        """
        may_hold = unmet.is_outage or (unmet.transient and self._has_held)
        kind = ServerAway if may_hold else ServerRefused
        return kind(
            f'{server.address.shown}: durability "{self.durability}" does not hold here: '
            f"{unmet.fact}; {unmet.remedy}"
        )
