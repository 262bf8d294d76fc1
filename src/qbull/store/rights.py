"""Rights: the rights that a Redis user needs for each role, as the ACL line that `qbull acl` prints.

The commands of a verb are read from its Lua (script_commands.py), because a script runs with the rights of
its caller. Commands outside scripts are listed here. docs/guides/security.md shows the lines, and its tests
work under them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from qbull.core.durability import Durability, profile_of
from qbull.errors import ConfigError
from qbull.store.acl_role import AclRole
from qbull.store.connection.address import Topology
from qbull.store.names import CONFIRM_MARK, Names
from qbull.store.script_commands import commands_of

PASSWORD_PLACEHOLDER = "PASSWORD"  # noqa: S105
"""Stands in the line for the password to choose."""


_SWITCH_VERBS = ("move_close", "move_layout")
"""The verbs with which any client that meets a closed partition may have to finish a switch."""
_MOVE_VERBS = (
    *_SWITCH_VERBS,
    *(
        "move_out",
        "move_in",
        "move_ack",
        "move_announce_lanes",
        "move_free_lanes",
        "move_free_all_lanes",
        "drain_status",
        "move_erase",
        "set_flag",
    ),
)
_REGISTER_VERBS = ("register", "queue_register", "argument_token")
_HANDSHAKE_COMMANDS = ("client|setname", "client|setinfo", "info", "eval", "evalsha")
_PRODUCER_ROLE = AclRole(
    verbs=(
        "put",
        "enqueue",
        "deposit",
        "unique",
        "flow_start",
        "flow_continue",
        "flow_follow",
        "find",
        "finished_since",
        "signal",
        "set_published",
        "group_change",
        "set_flag",
        *_REGISTER_VERBS,
        *_SWITCH_VERBS,
    ),
    commands=("hexists", "hgetall", "hkeys", "hmget", "smembers", "subscribe", "ping", "xdel", "xread"),
    names=("queues", "groups", "group:*"),
    channels=("bell", "done"),
)
_WRITE_ONLY_PRODUCER = AclRole(
    verbs=("deposit", *_REGISTER_VERBS),
    commands=("hexists", "hmget", "ping"),
    names=("queues",),
    channels=("bell",),
)
_COUNTED_NAMES = (
    *(
        "",
        "ahead",
        "bands",
        "delayed",
        "expiring",
        "held",
        "kept",
        "lanes",
        "mark",
        "once:*",
        "stats",
        "stats:*",
    ),
    *("ranked", "trains"),
)
"""The names of a partition that a write-only producer reads and writes: counts, ids, times, but no record."""
_RECORD_NAMES = ("index", "lane:*", "ready:*", "reports")
"""The names of a partition that it only writes: they have records, or lead to them."""
_WORKER_ROLE = AclRole(
    verbs=(
        *(
            "consumer_groups",
            "fetch",
            "holds",
            "suspect_start",
            "take_over",
            *("progress_write", "stack_answer"),
            "history_write",
            "set_published",
            "emit",
            "signals_read",
            "reports_add",
            "settle",
            "unpark",
            "parked_report",
            "release",
            "promote",
            "reclaim",
            "lease",
            "unlease",
        ),
        *(
            "worker_register",
            "worker_update",
            "heartbeat",
            "worker_forget",
            "workers",
            "live_settings",
            "histograms",
            "count",
        ),
        *(
            *_REGISTER_VERBS,
            "publish",
            "states",
            "declare",
            "schedule_write",
            "schedule_read",
            "tick",
            "start_check",
            "limit_acquire",
            "queue_hold",
            "limit_free_slots",
        ),
        *("shared_limit_acquire", "shared_limit_free", "shared_limit_declare", "limited_heads"),
        *("flow_start", "flow_continue", "flow_follow", "flow_deliver", "flow_outbox", "call_answer"),
        *("cancel", "find", *_MOVE_VERBS),
        *("failure_counts", "alert_watch", "alert_raise", "minutes", "newest_finished"),
        *("health_report", "lost_workers", "schedule_ended", "shared_limit_usage", "limited_report"),
    ),
    commands=(
        *("get", "hdel", "hget", "hgetall", "hkeys", "hlen", "hmget", "hscan", "smembers", "sscan"),
        *("subscribe", "ping", "zrange"),
        *("xdel", "xrange", "xread", "xreadgroup", "xrevrange", "xinfo|consumers"),
    ),
    names=("", "queues", "workers", "roster", "losses", "lost", "truce", "schedules", "limits"),
    channels=("bell", "done"),
)
_RELAY_ROLE = AclRole(
    verbs=("enqueue", "states", "reports_take", *_REGISTER_VERBS, *_SWITCH_VERBS),
    commands=("hmget", "smembers"),
    names=("queues",),
    channels=("bell",),
)
_READER_ROLE = AclRole(
    verbs=(
        "count",
        "find",
        "limit_usage",
        "live_settings",
        "newest_finished",
        "schedule_read",
        "progress_read",
        "workers",
        "partition_report",
        "health_report",
        "lost_workers",
        "minutes",
        "parked_report",
        "drain_status",
        *("shared_limit_usage", "limited_report"),
    ),
    commands=(
        *("hexists", "hget", "hkeys", "hmget", "hscan", "lrange", "smembers", "zrange", "zscore"),
        *("xinfo|groups", "xpending", "xrange", "xrevrange"),
    ),
    names=("", "queues", "workers", "roster", "lost", "truce", "schedules", "limits"),
)
_ADMIN_ROLE = (
    _PRODUCER_ROLE
    | _READER_ROLE
    | AclRole(
        verbs=(
            *("cancel", "retry", "promote_one", "reschedule", "update", "remove", "clean", "configure"),
            *("audit_log", "acknowledge", "stack_ask", "fork"),
            *(
                "integrity",
                "integrity_counts",
                "heartbeat",
                "schedule_run",
                "schedule_write",
                "promote",
                "import_failed",
                *_MOVE_VERBS,
            ),
        ),
        commands=("config|get", "hdel", "hlen", "role", "sscan", "time", "type", "zscan"),
        names=("trail", "trail:chain", "programs", "programs:chain", "once:*"),
        channels=("bell",),
    )
)
_API_ROLE = _ADMIN_ROLE | AclRole(
    verbs=(
        *(
            "unfinished",
            "lane_report",
            "jobs_ahead",
            "flow_jobs",
            "finished_since",
            "operation",
        ),
        *(
            "token_find",
            "token_used",
            "token_swap",
            "session_start",
            "session_seen",
            "login_attempt",
            "login_forgive",
        ),
    ),
    commands=("get", "hgetall", "hlen", "hvals", "mget", "unlink", "zrem"),
    names=("*",),
)
_MOVER_ROLE = _ADMIN_ROLE | AclRole(
    verbs=("move_leave", "move_arrive", "move_away", "move_open"),
    commands=(
        *("watch", "unwatch", "multi", "exec", "scan", "type", "pttl", "pexpire", "unlink", "exists", "get"),
        *("set", "hset", "hsetnx", "hkeys", "sadd", "zadd", "rpush", "xadd", "xlen", "xsetid"),
        *("xinfo|stream", "xgroup|create"),
    ),
    names=(),
)
ACL_ROLES = {
    "producer": _PRODUCER_ROLE,
    "worker": _WORKER_ROLE,
    "relay": _RELAY_ROLE,
    "reader": _READER_ROLE,
    "admin": _ADMIN_ROLE,
    "api": _API_ROLE,
    "mover": _MOVER_ROLE,
}

_CLUSTER_COMMANDS = ("cluster|slots", "asking")
_SENTINEL_COMMANDS = ("role",)
_AT_SENTINELS_COMMANDS = (
    *("client|setname", "client|setinfo", "ping", "subscribe"),
    *("sentinel|master", "sentinel|get-master-addr-by-name", "sentinel|replicas"),
)


class AclScope(msgspec.Struct, frozen=True):
    """The scope of a user: the app's prefix, its queues or all, the kind of server, and the durability."""

    prefix: str
    queues: Sequence[str] = ()
    topology: Topology = "one"
    database: int = 0
    durability: Durability | None = None
    write_only: bool = False
    """Whether a producer must not read payloads and results."""
    version: tuple[int, int] | None = None
    """The version of the server, which refuses a line with a command that it does not know; None for any
    server of today."""


COMMAND_VERSIONS: dict[str, tuple[int, int]] = {"client|setinfo": (7, 2), "waitaof": (7, 2)}
"""Commands that are newer than the oldest supported server."""


def acl(roles: Iterable[str], scope: AclScope, user: str) -> str:
    """The command that gives a user these roles and nothing else, whatever it had before."""
    given = list(roles)
    if scope.write_only and given != ["producer"]:
        raise ConfigError(
            "write-only rights are for the role producer alone; make a user for each other role"
        )
    role = _WRITE_ONLY_PRODUCER if scope.write_only else _merged_roles(given)
    patterns = (
        _write_only_patterns(scope)
        if scope.write_only
        else [f"~{name}" for name in _key_patterns(role, scope)]
    )
    return " ".join(
        [
            f"ACL SETUSER {user} reset on >{PASSWORD_PLACEHOLDER}",
            *patterns,
            *(f"&{scope.prefix}:{channel}" for channel in sorted(set(role.channels))),
            *(f"+{command}" for command in sorted(_commands(role, scope))),
        ]
    )


def acl_at_sentinels(user: str, scope: AclScope) -> str:
    """The command for a user that only asks sentinels for the master."""
    commands = _known_commands({*_AT_SENTINELS_COMMANDS}, scope)
    rights = " ".join(f"+{command}" for command in sorted(commands))
    return f"ACL SETUSER {user} reset on >{PASSWORD_PLACEHOLDER} &+switch-master {rights}"


NO_PERMISSION_PREFIXES = ("NOPERM", "ACL failure", "The user executing the script can't")
"""The start of a refusal; the last one is that of Redis 7.0, for a call in a script."""


def missing_right(user: str, refusal: str, command: Sequence[object]) -> str:
    """Explain a NOPERM reply: the right that is missing, and how to grant it."""
    denied = re.search(r"permissions to run the '([^']+)' command", refusal)
    if denied:
        return (
            f'user "{user}" may not run {denied.group(1)}; run "ACL SETUSER {user} +{denied.group(1)}", '
            'or give it all rights of its role as "qbull acl" prints them'
        )
    if "can't run this command" in refusal:
        # Redis 7.0 does not tell which.
        fact = "may not run a command of this call"
    elif "channel" in refusal:
        fact = "may not use a channel of this app"
    else:
        at = 3 if command[:1] in (("EVAL",), ("EVALSHA",)) else 1
        fact = (
            f"may not use the name {command[at]!s}" if len(command) > at else "may not use a name of this app"
        )
    return (
        f'user "{user}" {fact}; give it the rights of its role as "qbull acl" prints them, with this prefix'
    )


def _merged_roles(roles: list[str]) -> AclRole:
    for name in roles:
        if name not in ACL_ROLES:
            raise ConfigError(f'role "{name}": use one of {", ".join(ACL_ROLES)}')
    found = ACL_ROLES[roles[0]]
    for name in roles[1:]:
        found |= ACL_ROLES[name]
    return found


def _key_patterns(role: AclRole, scope: AclScope) -> list[str]:
    names = Names(scope.prefix)
    waits = scope.durability is not None and profile_of(scope.durability).waits_for_replicas
    wanted = {"*"} if "*" in role.names else {*role.names, *([CONFIRM_MARK] if waits else [])}
    found = [names.app + name for name in sorted(wanted)]
    if not scope.queues:
        return [*found, f"{{{scope.prefix}:*"]
    for queue in scope.queues:
        found += [names.queue(queue) + "*", names.queue(queue).replace("}:", ":*")]
    if "limits" in wanted:
        found.append(names.limit("*") + "*")
    return found


def _write_only_patterns(scope: AclScope) -> list[str]:
    """The names of a write-only producer, each with the right to read and write it, or only to write it.

    A server takes a command for a read if it returns content. HEXISTS and HSTRLEN return none, so they work
    on names that may only be written.
    """
    names = Names(scope.prefix)
    waits = scope.durability is not None and profile_of(scope.durability).waits_for_replicas
    found = [f"~{names.queues}", *([f"~{names.app}{CONFIRM_MARK}"] if waits else [])]
    for queue in scope.queues or ("*",):
        base = names.queue(queue)
        found += [f"~{base}settings", *([f"~{base}{CONFIRM_MARK}"] if waits else [])]
        partition = base.replace("}:", ":*}:") if scope.queues else base
        found += [f"~{partition}{name}" for name in _COUNTED_NAMES]
        found += [f"%W~{partition}{name}" for name in _RECORD_NAMES]
    return list(dict.fromkeys(found))


def _commands(role: AclRole, scope: AclScope) -> set[str]:
    needed = {*_HANDSHAKE_COMMANDS, *role.commands}
    for verb in role.verbs:
        needed |= commands_of(verb)
    if scope.topology == "cluster":
        needed |= {*_CLUSTER_COMMANDS}
    if scope.topology == "sentinel":
        needed |= {*_SENTINEL_COMMANDS}
    if scope.database:
        needed.add("select")
    if scope.durability is not None:
        needed |= {*profile_of(scope.durability).commands(cluster=scope.topology == "cluster")}
    return _known_commands(needed, scope)


def _known_commands(needed: set[str], scope: AclScope) -> set[str]:
    """The commands without those that the server does not know. qbull works without CLIENT SETINFO."""
    if scope.version is None:
        return needed
    unknown = {command for command in needed if scope.version < COMMAND_VERSIONS.get(command, (0, 0))}
    if "waitaof" in unknown:
        raise ConfigError(
            f'durability "{scope.durability}" needs WAITAOF, which servers before 7.2 do not have; '
            'upgrade the server, or use "replicated"'
        )
    return needed - unknown
