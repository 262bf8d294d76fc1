"""Every command with arguments that nobody would give: it ends with 0, 1 or 2, says at most one short line, and leaves nothing behind.

The commands and their options are read from the parser itself, so that new ones are tried without a word here.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import redis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import qbull
from qbull.cli import main as command_line
from qbull.embedded.server import EmbeddedServer
from qbull.store.store import Store

LONGEST = 1_000
"""Characters of a refusal."""
ENDLESS = {"worker", "serve", "relay", "demo", "dev", "stream"}
"""They go on until they are stopped, so each call has an app, a directory or a job that is not there, or no database."""
ALWAYS, NEVER = {"directory", "no_wait", "watch"}, {"watching"}
"""Options without which, and with which, a command would not end."""
REPORTS = {"doctor", "drain", "audit"}
"""With these, 1 says that something is wrong, and what they print says what."""

# What a shell can hand over: no zero byte, and bytes that are not UTF-8 as lone surrogates.
odd_text = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    | st.sampled_from("\x1b\n\r\x7f\x85\u2028{}:*%\\\"'"),
    max_size=12,
)
odd_words = (
    odd_text
    | odd_text
    | st.sampled_from(
        [
            "",
            " ",
            "-",
            "--",
            "../../etc/passwd",
            "{x}",
            "{0.__class__}",
            "é☃",
            "a" * 20_000,
            "\udcff" * 300,
            "none",
            "null",
        ]
    )
)
numbers = st.sampled_from(
    ["0", "1", "2", "-1", "-0.0", "0.001", "nan", "inf", "-inf", "1e999", "1e308", "1e-308", "9" * 30, "9" * 5_000,
     "٣", "1_0", "0x10", "²", "½", "1,5", "5/0", "1/nan", "1/1e999", "3/60", "none"]
)  # fmt: skip
times = st.sampled_from(
    [
        "2026-13-99",
        "2026-01-31T09:00:00",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "2026-01-31T09:00:00Z",
    ]
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
texts_of_json = documents.map(json.dumps) | st.sampled_from(
    ['{"to": "a"}', '{"to": "a", "to": "b"}', "{" * 9_000, "[" * 9_000, '{"a":' * 900 + "1" + "}" * 900, '{"to": "\\ud800"}',
     '{"to": ' + "9" * 5_000 + "}", '{"to": NaN}', '{"to": "\udcff"}', '"' + "a" * 20_000 + '"', "-", '{"": 1e999}']
)  # fmt: skip
not_there = st.sampled_from(
    ["no.such.module:app", "corner:nothing", ":", "..", "a b:c", "corner:" + "a" * 9_000]
) | odd_text.map(lambda text: f"no.such.module:{text}")
refused_addresses = st.sampled_from(
    ["http://h", "redis://h:port", "redis://", "redis://h/db", "x" * 9_000, "\udcff", "redis+cluster://"]
)


def all_commands(group: click.Group = command_line.qbull, *before: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from all_commands(command, *before, name)
        elif command is not None and not command.hidden:
            yield *before, name


def command_of(path: tuple[str, ...]) -> click.Command:
    command: click.Command = command_line.qbull
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name) or command
    return command


@st.composite
def calls_of(draw: st.DrawFn, path: tuple[str, ...]) -> list[str]:
    """A call with up to three options that would be taken, but for one or two values of it."""
    parameters = command_of(path).params
    options = [one for one in parameters if isinstance(one, click.Option) and one.name not in NEVER]
    chosen = [one for one in options if one.required or one.name in ALWAYS]
    chosen += draw(st.lists(st.sampled_from(options), max_size=3, unique=True)) if options else []
    arguments = [
        one
        for one in parameters
        if isinstance(one, click.Argument)
        for _ in range(2 if one.nargs == -1 else 1)
    ]
    parts: list[click.Parameter] = [*dict.fromkeys(chosen), *arguments]
    odd = draw(st.sets(st.integers(0, len(parts)), min_size=1, max_size=2))
    call = [*path]
    for place, part in enumerate(parts):
        value = draw((odd_values if place in odd or path[0] in ENDLESS else sane_values)(path[0], part))
        if isinstance(part, click.Option):
            call.append(part.opts[-1] if part.is_flag else f"{part.opts[-1]}={value}")
        else:
            call += [*(["--"] if "--" not in call else []), value]
    return call


def sane_values(command: str, parameter: click.Parameter) -> st.SearchStrategy[str]:
    if isinstance(parameter.type, click.Choice):
        return st.sampled_from([str(choice) for choice in parameter.type.choices])
    if parameter.type.name.startswith(("int", "float")):
        return st.sampled_from(["0" if parameter.name == "wait" else "1"])
    sane = {
        "id": ["waiting-one", "cancelled-one"], "words": ["email", "waiting-one"], "name": ["nightly"], "task": ["email/send", "send"],
        "app_path": ["corner:app"], "queue_name": ["email"], "arguments": ['{"to": "a"}'], "payload": ['{"to": "a"}'], "cron": ["0 3 * * *"],
        "url": [str(os.environ.get("QBULL_URL"))], "source": [str(os.environ.get("QBULL_URL"))], "prefix": ["test"], "tz": ["Europe/Berlin"],
        "after": ["2026-01-31T09:00:00Z"], "before": ["2026-01-31T09:00:00Z"], "expires": ["90d"], "rate": ["3/60"], "retry": ["1,5"],
    }  # fmt: skip
    return st.sampled_from(sane.get(parameter.name or "", ["some"]))


def odd_values(command: str, parameter: click.Parameter) -> st.SearchStrategy[str]:
    match parameter.name:
        case "app_path":
            return not_there
        case "url" | "source" | "database":
            return refused_addresses
        case "wait":  # what is not refused is waited for
            return st.sampled_from(["0", "nan", "inf", "-1", "x", "1e-9"])
        case "directory" | "watch":
            return st.sampled_from(["/dev/null", "/dev/null/x", "/proc/x"])
        case "partitions":  # more of them take longer
            return st.sampled_from(["0", "1", "3", "-1", "nan", "9" * 40, "x"])
    if "JSON" in (parameter.metavar or ""):
        return texts_of_json | odd_words
    if parameter.type.name.startswith(("int", "float")):
        return numbers | numbers | odd_words
    return odd_words | numbers | times


class Caller:
    """Calls `qbull` as a shell does, only within this process."""

    def __init__(self, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self._names = redis.Redis(unix_socket_path=str(server.socket), password=server.password)
        self._monkeypatch = monkeypatch

    def __call__(self, arguments: list[str]) -> tuple[int, str, str]:
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")
        with self._monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["qbull", *arguments])
            patched.setattr(sys, "stdin", io.StringIO("{"))
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                command_line.main()
            out.flush()
            err.flush()
        code = ended.value.code
        assert isinstance(code, int)
        return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()  # type: ignore[attr-defined]

    def names(self) -> set[bytes]:
        return set(self._names.scan_iter(count=1000))

    def close(self) -> None:
        self._names.close()


@pytest.fixture
def call(
    store: Store, server: EmbeddedServer, server_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Caller]:
    """A server with a queue, a job and a schedule; the app of it in a module; nothing of the developer's own around."""
    monkeypatch.setenv("QBULL_URL", server_url)
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    app = qbull.App(server_url, prefix="test")
    task: Any = app.queue("email", order="key").task(name="send", key="{to}")(send)
    module: Any = ModuleType("corner")
    module.app = app
    monkeypatch.setitem(sys.modules, "corner", module)
    task.options(id="waiting-one").enqueue_sync(to="a")
    task.options(id="cancelled-one").enqueue_sync(to="b")
    caller = Caller(server, monkeypatch)
    assert caller(["cancel", "email", "cancelled-one"])[0] == 0
    made = caller(
        [
            "schedules",
            "put",
            "nightly",
            "email/send",
            '{"to": "a"}',
            "--cron",
            "0 3 * * *",
            "-A",
            "corner:app",
        ]
    )
    assert made[0] == 0, made
    yield caller
    caller.close()
    app.close_sync()


async def send(to: str, copies: int = 1) -> None: ...


@pytest.mark.parametrize("path", list(all_commands()), ids=" ".join)
def test_a_command_does_it_or_refuses_in_one_short_line(path: tuple[str, ...], call: Caller) -> None:
    @settings(
        max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(calls_of(path))
    def holds(arguments: list[str]) -> None:
        ends_well(call, arguments)

    holds()


def ends_well(call: Caller, arguments: list[str]) -> str:
    before = call.names()
    code, out, err = call(arguments)
    said = f"{shlex.join(arguments)[:3_000]!r}: {code}, {err[:3_000]!r}"
    assert code in (0, 1, 2), said
    assert "Traceback" not in out + err, said
    if code and arguments[0] not in REPORTS:
        *news, refusal = err.splitlines()
        assert refusal.startswith("qbull: ") and len(refusal) <= LONGEST and len(news) <= 1, said
        assert any("--wait" in word for word in arguments) or call.names() <= before, said
    return err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "schedules put x email/send {} --every 5 --start 0001-01-01T00:00:00+23:59 -A corner:app",
            "give a year from 1970",
        ),
        (
            "schedules put x email/send {} --every 5 --end 9999-12-31T23:59:59-23:59 -A corner:app",
            "give a year from 1970",
        ),
        ("jobs email --start 99999999999999999999 --end 99999999999999999999", "give 0 <= start <= end"),
        ("configure email --max-active " + "9" * 5_000, "give a number of jobs, 1 or more, or none"),
        ("configure email --max-active 99999999999999999999", "give a whole number from 1 to 1,000,000,000"),
        (
            "configure email --rate 99999999999999999999/60",
            "give a whole number of starts from 1 to 1,000,000,000",
        ),
        ("token create --role viewer --name x --expires ²d", "for example 90d"),
        (f"token create --role viewer --name x --expires {'9' * 5_000}d", "for example 90d"),
        ("pause em\udcffail", "is not UTF-8"),
        ("stats " + "a" * 20_000, "not on this server"),
        ("run nightly --wait nan", "is not a duration"),
        ("worker corner:app --grace inf", "is not a duration"),
        ("worker corner:app --queues ,", "name at least one"),
    ],
    ids=lambda text: text[:40].encode(errors="replace").decode(),
)
def test_what_was_found_is_refused(line: str, says: str, call: Caller) -> None:
    said = ends_well(call, line.replace("{}", '{"to":"a"}').split())

    assert says in said


def test_a_schedule_of_impossible_times_does_not_spoil_the_list(call: Caller) -> None:
    for time in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        call(
            [
                "schedules",
                "put",
                "x",
                "email/send",
                '{"to":"a"}',
                "--every=5",
                f"--start={time}",
                "-A=corner:app",
            ]
        )

    assert call(["schedules"])[0] == 0
