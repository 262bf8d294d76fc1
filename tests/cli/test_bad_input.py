"""Whatever a user does wrong ends with one line that names it, and no traceback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures

from qbull.embedded.server import EmbeddedServer
from qbull.store.store import Store


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://localhost", 'unknown scheme "http"'),
        ("localhost:6379", 'unknown scheme "localhost"'),
        ("redis://localhost:port", "the port must be a number"),
        ("redis://localhost:99999", "the port must be a number"),
        ("redis://", "it names no host"),
        ("redis://localhost/db", "the database must be a number"),
        ("redis://127.0.0.1:1", "cannot be reached"),
        ("redis://no.such.host.invalid", "cannot be reached"),
        ("unix:///no/such.sock", "cannot be reached"),
    ],
)
def test_a_wrong_address_is_said(shell: Shell, url: str, line: str) -> None:
    assert line in shell.refused("queues", "--url", url)
    assert line in shell.refused("stats", "email", QBULL_URL=url)


def test_a_wrong_password_is_said_and_not_shown(shell: Shell, server: EmbeddedServer) -> None:
    said = shell.refused("queues", "--url", f"unix://:secret-word@{server.socket}")

    assert "refused the user or password" in said
    assert "secret-word" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOTAL_PARTITIONS", "abc"),
        ("PARTITIONS", "0"),
        ("MIN_IDLE_TIME_MS", "x"),
        ("QBULL_LOG_LEVEL", "LOUD"),
        ("QBULL_LOG_FORMAT", "xml"),
        ("QBULL_PREFIX", "a b"),
    ],
)
def test_a_wrong_environment_is_said(shell: Shell, name: str, value: str) -> None:
    for command in (("queues",), ("worker", "sample_app")):
        assert shell.refused(*command, **{name: value}).startswith(f"{name}={value!r}")


@pytest.mark.parametrize("name", ["a on nopass", "a\nACL SETUSER eve on nopass", "", " a", "a\t"])
def test_the_name_of_a_redis_user_is_one_word(shell: Shell, name: str) -> None:
    said = shell.refused("acl", "producer", "--server-version", "7.2", "--user", name, code=2)

    assert "give a name without spaces" in said


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("nowhere", 'no module "nowhere"'),
        ("nowhere.tasks:app", 'no module "nowhere"'),
        ("sample_app.tasks:app", "the import failed"),
        ("sample_app:nothing", '"nothing" is not a qbull.App; apps in this module: app'),
        ("sample_app:SampleApp", '"SampleApp" is not a qbull.App'),
        (":app", "is not of the form MODULE:APP"),
        ("sample_app.py", "the import failed"),
        ("./sample_app.py:app", "is not of the form MODULE:APP"),
        ("..sample_app:app", "is not of the form MODULE:APP"),
        ("", "is not of the form MODULE:APP"),
    ],
)
def test_a_wrong_app_is_said(shell: Shell, path: str, line: str) -> None:
    said = shell.refused("worker", path)

    assert line in said or "no module" in said


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' ("),
        ("\n1 / 0", "broken.py, line 2"),
        ("def", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import qbull; qbull.App().queue('a b')", "queue name 'a b'"),
    ],
)
def test_an_app_that_cannot_be_imported_is_said_with_its_line(shell: Shell, source: str, line: str) -> None:
    (shell.directory / "broken.py").write_text(source)

    assert line in shell.refused("worker", "broken:app")


async def test_what_is_not_there_is_said(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    assert shell.refused("stats", "mail") == 'queue "mail": not on this server; it has: email'
    assert shell.refused("jobs", "mail") == 'queue "mail": not on this server; it has: email'
    assert shell.refused("enqueue", "mail", "send", "{}").startswith('queue "mail": not on this server')
    assert shell.refused("job", "email", "x").startswith('queue "email": no job x')
    assert "not declared in this app" in shell.refused("worker", "sample_app", "--queues", "mail")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("stats",),
        ("jobs", "email", "--state", "odd"),
        ("queues", "--loud"),
        ("stats", "a", "b"),
    ],
)
def test_a_wrong_command_line_is_one_line(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert "--help" in shell.refused(*arguments, code=2)


def test_an_app_and_an_address_together_are_refused(shell: Shell) -> None:
    assert "--app brings its own server" in shell.refused(
        "queues", "-A", "sample_app", "--url", "redis://x", code=2
    )


async def test_a_page_that_is_too_long_is_refused(shell: Shell, sample: SampleApp) -> None:
    await sample.send.enqueue(to="a")

    assert "at most 1,000" in shell.refused("jobs", "email", "--end", "5000")
    assert "start <= end" in shell.refused("jobs", "email", "--start", "5", "--end", "1")


async def test_a_server_that_evicts_is_refused(shell: Shell, tmp_path: Path) -> None:
    own = EmbeddedServer.open(tmp_path / "own")
    url = f"unix://:{own.password}@{own.socket}"
    store = Store(url, "test")
    await store.server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await store.close()

    for command in (("queues",), ("enqueue", "email", "send", "{}")):
        assert 'maxmemory-policy is "allkeys-lru"' in shell.refused(*command, QBULL_URL=url)
    worker = shell.run("worker", "sample_app", QBULL_URL=url)
    assert worker.code == 1
    assert 'maxmemory-policy is "allkeys-lru"' in worker.err.splitlines()[-1]

    own.close()


@pytest.fixture
def old_server() -> Iterator[int]:
    """Answers INFO as Redis 6.2 does, and anything else with OK. There is no real one to be had."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(line: socket.socket) -> None:
        info = b"redis_version:6.2.0\r\n"
        with line, line.makefile("rb") as requests:
            while head := requests.readline():
                words = [requests.read(int(requests.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                line.sendall(b"$%d\r\n%s\r\n" % (len(info), info) if words == [b"INFO"] else b"+OK\r\n")

    def accept() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[line], daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_server_that_is_too_old_is_refused(shell: Shell, old_server: int) -> None:
    said = shell.refused("queues", "--url", f"redis://127.0.0.1:{old_server}")

    assert "Redis 6.2.0 is too old; qbull needs Redis 7.0" in said
