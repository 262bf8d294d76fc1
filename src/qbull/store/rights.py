"""Rights: what a Redis user needs for each role, as the line that gives it exactly that. `qbull acl` prints it.

The commands of a verb are read from its Lua, because a script runs with the rights of whoever calls it. What is sent
besides scripts is listed here. docs/guides/security.md shows the lines, and its tests work under them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbull.core.durability import Durability
from qbull.errors import ConfigError
from qbull.store.connection.address import Topology
from qbull.store.connection.scripts import script
from qbull.store.names import MARK, Names

PASSWORD = "PASSWORD"  # noqa: S105
"""Stands in the line for the one to choose."""


@dataclass(frozen=True)
class Role:
    """`verbs` are scripts, `commands` what is sent besides; `names` are those of the app as a whole, by their last part.

    A script that works on the app as a whole is called with the start of its names: a name without a last part. Whoever
    could write the names of tokens and sessions could make himself an admin of the API, so only that has all names.
    """

    verbs: tuple[str, ...]
    commands: tuple[str, ...]
    names: tuple[str, ...]
    channels: tuple[str, ...] = ()

    def __or__(self, other: Role) -> Role:
        return Role(
            (*self.verbs, *other.verbs),
            (*self.commands, *other.commands),
            (*self.names, *other.names),
            (*self.channels, *other.channels),
        )


_SWITCHING = ("close", "relayout")
"""What whoever comes to a closed partition may have to end."""
_MOVING = (*_SWITCHING, *("depart", "land", "departed", "learn", "unhold", "clear", "tally", "raze"))
_REGISTERING = ("register", "enlist")
_GREETING = ("client|setname", "client|setinfo", "info", "eval", "evalsha")
_PRODUCER = Role(
    verbs=("put", "enqueue", "unique", "plant", "grow", "find", "news", "mark", *_REGISTERING, *_SWITCHING),
    commands=("hexists", "hmget", "subscribe", "ping", "xdel"),
    names=("queues",),
    channels=("bell", "done"),
)
_WORKER = Role(
    verbs=(
        *(
            "group",
            "fetch",
            "alone",
            "note",
            "report",
            "settle",
            "release",
            "promote",
            "reclaim",
            "lease",
            "unlease",
        ),
        *("enroll", "beat", "bury", "roster", "live", "figures", "count"),
        *(*_REGISTERING, "declare", "plan", "plans", "tick", "begin", "grant", "hold", "vacate"),
        *("plant", "grow", "join", "outgoing", "find", *_MOVING),
        *("failing", "watch", "raise", "minutes", "newest"),
    ),
    commands=(
        *("hdel", "hget", "hgetall", "hkeys", "hlen", "hmget", "hscan", "smembers", "sscan"),
        *("subscribe", "ping", "zrange"),
        *("xdel", "xrange", "xreadgroup", "xrevrange", "xinfo|consumers"),
    ),
    names=("", "queues", "workers", "roster", "losses", "truce", "schedules"),
    channels=("bell", "done"),
)
_RELAY = Role(
    verbs=("enqueue", "states", "reports", *_REGISTERING, *_SWITCHING),
    commands=("hmget", "smembers"),
    names=("queues",),
    channels=("bell",),
)
_READER = Role(
    verbs=("count", "find", "limits", "live", "newest", "plans", "progress", "roster", "survey", "tally"),
    commands=(
        *("hexists", "hget", "hkeys", "hmget", "hscan", "lrange", "smembers", "zrange"),
        *("xinfo|groups", "xpending", "xrange", "xrevrange"),
    ),
    names=("", "queues", "workers", "roster", "schedules"),
)
_ADMIN = (
    _PRODUCER
    | _READER
    | Role(
        verbs=(
            *("cancel", "retry", "promote_one", "remove", "clean", "configure"),
            *("audit", "audit_counts", "beat", "fire", "plan", "promote", *_MOVING),
        ),
        commands=("config|get", "hdel", "hlen", "role", "sscan", "time", "type", "zscan"),
        names=("truce",),
        channels=("bell",),
    )
)
_API = _ADMIN | Role(
    verbs=(
        *("roam", "lane", "ahead", "flows", "minutes", "news", "operation", "trail"),
        *("token", "token_used", "session_begin", "session_seen", "attempt", "forgive"),
    ),
    commands=("get", "hgetall", "hlen", "hvals", "mget", "unlink", "zrem"),
    names=("*",),
)
ROLES = {
    "producer": _PRODUCER,
    "worker": _WORKER,
    "relay": _RELAY,
    "reader": _READER,
    "admin": _ADMIN,
    "api": _API,
}

_CLUSTER = ("cluster|slots", "asking")
_SENTINEL = ("role",)
_DURABILITY: dict[Durability, tuple[str, ...]] = {
    "fast": ("config|get",),
    "durable": ("config|get",),
    "replicated": ("config|get", "role", "set", "wait"),
    "strict": ("config|get", "role", "set", "waitaof"),
}
_AT_SENTINELS = (
    *("client|setname", "client|setinfo", "ping", "subscribe"),
    *("sentinel|master", "sentinel|get-master-addr-by-name", "sentinel|replicas"),
)


@dataclass(frozen=True)
class Place:
    """Where a user is to work: the app's prefix, some of its queues or all, the kind of server, how safe jobs must be."""

    prefix: str
    queues: Sequence[str] = ()
    topology: Topology = "one"
    database: int = 0
    durability: Durability | None = None


def acl(roles: Iterable[str], place: Place, user: str) -> str:
    """The command that gives a user these roles and nothing else, whatever it had before."""
    role = _together(list(roles))
    return " ".join(
        [
            f"ACL SETUSER {user} reset on >{PASSWORD}",
            *(f"~{name}" for name in _names(role, place)),
            *(f"&{place.prefix}:{channel}" for channel in sorted(set(role.channels))),
            *(f"+{command}" for command in sorted(_commands(role, place))),
        ]
    )


def acl_at_sentinels(user: str) -> str:
    """The same for whoever asks sentinels where the master is."""
    rights = " ".join(f"+{command}" for command in sorted(_AT_SENTINELS))
    return f"ACL SETUSER {user} reset on >{PASSWORD} &+switch-master {rights}"


def missing_right(user: str, refusal: str, command: Sequence[object]) -> str:
    """What a server's NOPERM means: the right that is missing, and how to give it."""
    denied = re.search(r"permissions to run the '([^']+)' command", refusal)
    if denied:
        return (
            f'user "{user}" may not run {denied.group(1)}; run "ACL SETUSER {user} +{denied.group(1)}", '
            'or give it all rights of its role as "qbull acl" prints them'
        )
    if "channel" in refusal:
        fact = "may not use a channel of this app"
    else:
        at = 3 if command[:1] in (("EVAL",), ("EVALSHA",)) else 1
        fact = (
            f"may not use the name {command[at]!s}" if len(command) > at else "may not use a name of this app"
        )
    return (
        f'user "{user}" {fact}; give it the rights of its role as "qbull acl" prints them, with this prefix'
    )


def _together(roles: list[str]) -> Role:
    for name in roles:
        if name not in ROLES:
            raise ConfigError(f'role "{name}": use one of {", ".join(ROLES)}')
    found = ROLES[roles[0]]
    for name in roles[1:]:
        found |= ROLES[name]
    return found


def _names(role: Role, place: Place) -> list[str]:
    names = Names(place.prefix)
    waits = place.durability in ("replicated", "strict")
    wanted = {"*"} if "*" in role.names else {*role.names, *([MARK] if waits else [])}
    found = [names.app + name for name in sorted(wanted)]
    if not place.queues:
        return [*found, f"{{{place.prefix}:*"]
    for queue in place.queues:
        found += [names.queue(queue) + "*", names.queue(queue).replace("}:", ":*")]
    return found


def _commands(role: Role, place: Place) -> set[str]:
    needed = {*_GREETING, *role.commands}
    for verb in role.verbs:
        needed |= commands_of(verb)
    if place.topology == "cluster":
        needed |= {*_CLUSTER}
    if place.topology == "sentinel":
        needed |= {*_SENTINEL}
    if place.database:
        needed.add("select")
    if place.durability is not None:
        needed |= {*_DURABILITY[place.durability]}
        if place.topology == "cluster" and place.durability in ("replicated", "strict"):
            needed.add("cluster|nodes")
    return needed


_FUNCTION = re.compile(r"local function (\w+)\(")
_CALL = re.compile(r"(?:redis\.p?call|in_chunks)\('([A-Z_]+)'(?:, '([A-Z]+)')?")
_CONTAINERS = ("XGROUP", "XINFO")


def commands_of(verb: str) -> set[str]:
    """What a script can come to call: what is outside of functions, and what is in those that it can come to."""
    functions, main = _parts(re.sub(r"--.*", "", script(verb).source))
    calls, reached, waiting = set[str](), set[str](), [main]
    while waiting:
        text = waiting.pop()
        for command, sub in _CALL.findall(text):
            calls.add(f"{command}|{sub}".lower() if command in _CONTAINERS else command.lower())
        for name in functions.keys() - reached:
            if re.search(rf"\b{name}\b", text):
                reached.add(name)
                waiting.append(functions[name])
    return calls


def _parts(source: str) -> tuple[dict[str, str], str]:
    """Its functions by name, and the rest. They begin and end at the left margin, or are one line."""
    functions: dict[str, str] = {}
    main, inside = "", None
    for line in source.splitlines():
        head = _FUNCTION.match(line)
        if head:
            functions[head.group(1)] = line
            inside = None if line.rstrip().endswith(" end") else head.group(1)
        elif inside is not None:
            functions[inside] += "\n" + line
            inside = None if line.rstrip() == "end" else inside
        else:
            main += line + "\n"
    return functions, main
