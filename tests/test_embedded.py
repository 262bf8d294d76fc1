"""The embedded server: one for each directory, up while somebody wants it, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qbull.embedded import server as module
from qbull.embedded.server import EmbeddedServer
from qbull.embedded.watchdog import NO_LAST_LINE, last_line
from qbull.errors import EmbeddedError

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks at processes through /proc"
)

T = TypeVar("T")

USER = """
import os, sys
from qbull.embedded.server import EmbeddedServer
embedded = EmbeddedServer.open(sys.argv[1])
{then}
os.write(1, b"ready\\n")
sys.stdin.read()
embedded.close()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for a server. When the test is over, no process may be left in it."""
    yield tmp_path / "data"
    try:
        eventually(lambda: not running(tmp_path))
    finally:
        for pid in running(tmp_path):
            os.kill(pid, signal.SIGKILL)
        stand_in = module._short_directory(tmp_path / "data", tempfile.gettempdir())
        shutil.rmtree(stand_in, ignore_errors=True)  # stays behind a killed watchdog until the next start


@pytest.fixture
def user(directory: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts another process that uses the server, until its input is closed or it is killed."""
    with contextlib.ExitStack() as users:

        def start(then: str = "", ready: bool = True, **environment: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", USER.format(then=then), str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
            )
            users.enter_context(process)
            users.callback(process.kill)
            if ready:
                wait_until_ready(process)
            return process

        yield start


# Start


def test_a_server_starts_within_a_second_and_a_second_user_attaches_at_once(directory: Path) -> None:
    began = time.perf_counter()
    first = EmbeddedServer.open(directory)
    started = time.perf_counter()
    second = EmbeddedServer.open(directory)
    attached = time.perf_counter()

    print(f"started in {(started - began) * 1e3:.0f} ms, attached in {(attached - started) * 1e3:.1f} ms")
    assert started - began < 10  # about 0.07 s on a quiet machine
    assert client(first).set("name", "value")
    assert client(second).get("name") == b"value"
    assert len(running(directory)) == 2  # one watchdog, one server

    second.close()
    assert client(first).ping()
    first.close()


def test_two_processes_share_one_server(directory: Path, user: Callable[..., subprocess.Popen[str]]) -> None:
    user()
    embedded = EmbeddedServer.open(directory)

    assert len(running(directory)) == 2

    embedded.close()


def test_ten_processes_that_race_get_one_server(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    racers = [user(ready=False) for _ in range(10)]
    for racer in racers:
        wait_until_ready(racer)

    assert len(running(directory)) == 2
    assert (directory / "server.log").read_text().count("Ready to accept connections") == 1


def test_the_server_is_durable_and_locked_down(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory)
    server = client(embedded)

    settings = {name: str(value) for name, value in server.config_get("*").items()}
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["no-appendfsync-on-rewrite"] == "no"
    assert settings["save"] == ""
    assert settings["maxmemory-policy"] == "noeviction"
    assert int(settings["maxmemory"]) > 0
    assert settings["port"] == "0"
    for refused in ("DEBUG SLEEP 0", "MODULE LOAD /none", "CONFIG SET dir /"):
        with pytest.raises(redis.ResponseError):
            server.execute_command(*refused.split())  # type: ignore[no-untyped-call]
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(unix_socket_path=str(embedded.socket), retry=Retry(NoBackoff(), 0)).ping()

    embedded.close()


def test_nobody_else_can_read_the_directory(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory / "made" / "with" / "parents")

    assert mode(embedded.directory) == 0o700
    places = {embedded.directory, embedded.socket.parent}  # the same, unless the path is long
    modes = {path.name: mode(path) for place in places for path in place.iterdir() if not path.is_dir()}
    assert set(modes) >= {"password", "server.conf", "server.log", "qbull.lock", "server.sock", "keeper.sock"}
    assert set(modes.values()) == {0o600}

    embedded.close()


def test_the_password_is_made_once_and_in_no_process_list(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory)
    password = embedded.password

    assert len(password) > 40
    assert not [pid for pid in pids() if password in cmdline(pid)]

    embedded.close()
    embedded = EmbeddedServer.open(directory)
    assert embedded.password == password
    embedded.close()


def test_the_watchdog_has_no_terminal_and_none_of_our_files_and_is_not_our_child(directory: Path) -> None:
    with open(os.devnull) as ours:
        os.set_inheritable(ours.fileno(), True)
        embedded = EmbeddedServer.open(directory)

    assert os.getsid(watchdog(directory)) not in (os.getsid(0), watchdog(directory))
    for pid in running(directory):
        opened = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        files = {name for name in opened if name.startswith("/") and "appendonlydir" not in name}
        assert files == {os.devnull, f"{directory}/server.log", f"{directory}/qbull.lock"}
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)

    embedded.close()


@pytest.mark.parametrize("name", ["two words", "käfer", 'quo"te', "new\nline", "x" * 150])
def test_any_path_works(directory: Path, name: str) -> None:
    embedded = EmbeddedServer.open(directory / name)

    assert client(embedded).set("name", "value")
    assert mode(embedded.socket.parent) == 0o700
    assert len(os.fsencode(embedded.socket)) < 104

    embedded.close()
    assert not embedded.socket.exists()
    eventually(lambda: embedded.socket.parent == embedded.directory or not embedded.socket.parent.exists())


def test_users_of_a_long_path_meet_even_if_their_temporary_directories_differ(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = directory / ("x" * 150)
    first = EmbeddedServer.open(long)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    second = EmbeddedServer.open(long)

    assert first.socket == second.socket

    second.close()
    first.close()


def test_a_stand_in_for_a_long_path_that_others_can_enter_is_refused(directory: Path) -> None:
    long = directory / ("x" * 150)
    embedded = EmbeddedServer.open(long)
    stand_in = embedded.socket.parent
    embedded.close()
    eventually(lambda: not stand_in.exists())

    stand_in.mkdir(mode=0o755)

    refuses(long, f"{stand_in}: made by somebody else")
    stand_in.rmdir()


# Refusals, each in one line


def test_without_a_binary_the_error_says_what_to_do(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/none")

    with pytest.raises(EmbeddedError) as refusal:
        EmbeddedServer.open(directory)

    assert (
        str(refusal.value)
        == "no embedded server for this platform; set QBULL_URL to a running Redis or Valkey"
    )


def test_a_binary_that_cannot_be_executed_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = directory.parent / "valkey-server"
    binary.write_text("not a program")
    monkeypatch.setenv("QBULL_VALKEY_SERVER", str(binary))
    refuses(directory, f"{binary}: not there or not executable; set QBULL_VALKEY_SERVER to a valkey-server")

    binary.chmod(0o755)

    refuses(directory, f"the server does not stay up: {binary} cannot be executed: Exec format error")


def test_a_watchdog_that_cannot_run_is_not_tried_forever(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    refuses(directory, f"{directory}: the watchdog of the server does not stay up; see server.log there")


def test_a_file_in_place_of_the_directory_is_refused(directory: Path) -> None:
    directory.write_text("")

    refuses(directory, f"{directory}: cannot hold the server's data: File exists")
    refuses(directory / "below", f"{directory}/below: cannot hold the server's data: Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_not_writable_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o500)

    refuses(directory, f"{directory}: cannot hold the server's data: not writable")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_another_user_is_refused(directory: Path) -> None:
    directory.mkdir()
    os.chown(directory, 12345, 12345)

    refuses(directory, f"{directory}: belongs to another user; give qbull a directory of its own")


def test_an_open_directory_is_made_private_only_if_it_holds_nothing_else(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    (directory / "README").touch()
    refuses(directory, f"{directory}: holds other files that others may read; give qbull its own")
    assert mode(directory) == 0o755

    (directory / "README").unlink()
    EmbeddedServer.open(directory).close()

    assert mode(directory) == 0o700


def test_a_server_that_cannot_start_gives_its_last_words(directory: Path) -> None:
    EmbeddedServer.open(directory).close()
    [log] = (directory / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(b"garbage in the middle\r\n*1\r\n$4\r\nPING\r\n")

    refuses(directory, "the server does not stay up: Bad file format reading the append only file")


# Ends of all kinds


def test_a_killed_server_comes_back_with_its_data(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory)
    client(embedded).set("name", "value")
    killed = server(directory)

    os.kill(killed, signal.SIGKILL)
    eventually(lambda: killed not in running(directory))
    embedded.ensure()

    assert client(embedded).get("name") == b"value"
    embedded.close()


def test_after_a_killed_watchdog_the_next_ensure_starts_both_again(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    embedded = EmbeddedServer.open(directory)
    user("import threading; threading.Timer(0.3, embedded.ensure).start()")
    client(embedded).set("name", "value")
    before = running(directory)
    killed = watchdog(directory)

    os.kill(killed, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{killed}").exists())  # or the old server may answer once more
    embedded.ensure()

    assert client(embedded).get("name") == b"value"
    eventually(lambda: len(running(directory)) == 2 and not set(before) & set(running(directory)))
    embedded.close()


def test_a_killed_watchdog_takes_the_server_along(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    user()

    os.kill(watchdog(directory), signal.SIGKILL)

    eventually(lambda: not running(directory))


def test_data_survives_everything_being_killed_at_once(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    owner = user()
    embedded = EmbeddedServer.open(directory)
    client(embedded).set("name", "value")
    old = running(directory)

    for pid in (*old, owner.pid):
        os.kill(pid, signal.SIGKILL)
    embedded.close()
    embedded = EmbeddedServer.open(directory)

    assert client(embedded).get("name") == b"value"
    assert not set(old) & set(running(directory))
    embedded.close()


def test_the_server_goes_when_its_only_user_is_killed(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    owner = user()
    assert len(running(directory)) == 2

    owner.kill()

    eventually(lambda: not running(directory))


def test_the_server_stays_while_a_second_user_lives(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    owner = user()
    embedded = EmbeddedServer.open(directory)
    before = running(directory)

    owner.kill()
    owner.wait()
    EmbeddedServer.open(directory).close()  # by its answer the watchdog has noticed the end of the owner

    assert running(directory) == before
    assert client(embedded).ping()
    embedded.close()


def test_the_last_close_waits_for_a_clean_stop(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory)
    stopped = server(directory)

    embedded.close()

    assert stopped not in running(directory)
    assert "Received SIGTERM" in (directory / "server.log").read_text()
    assert "ready to exit" in (directory / "server.log").read_text()
    embedded.close()
    with pytest.raises(EmbeddedError, match="closed; open it again"):
        embedded.ensure()


def test_a_watchdog_that_is_told_to_stop_stops_the_server_first(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory)
    before = running(directory)

    os.kill(watchdog(directory), signal.SIGTERM)
    eventually(lambda: not running(directory))
    embedded.ensure()

    assert "ready to exit" in (directory / "server.log").read_text()
    assert not set(before) & set(running(directory))
    embedded.close()


def test_an_open_in_the_moment_of_the_last_close_gets_a_server(directory: Path) -> None:
    for _ in range(5):
        leaving = EmbeddedServer.open(directory)
        client(leaving).incr("turns")
        thread = threading.Thread(target=leaving.close)
        thread.start()
        coming = EmbeddedServer.open(directory)

        thread.join()
        assert client(coming).ping()
        coming.close()


def test_a_server_without_a_watchdog_is_asked_to_leave(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory)
    embedded.close()
    with open(directory / "qbull.lock", "r+") as lock:  # as on macOS, when the watchdog was killed
        eventually(lambda: locked(lock.fileno()))
        orphan = subprocess.Popen(
            [module._find_server(), directory / "server.conf"],
            stdout=subprocess.DEVNULL,
            pass_fds=[lock.fileno()],
        )
    eventually(lambda: answers(embedded))
    client(embedded).set("name", "value")

    embedded = EmbeddedServer.open(directory)

    assert orphan.wait() == 0
    assert client(embedded).get("name") == b"value"
    embedded.close()


def test_a_server_that_keeps_ending_is_not_started_in_a_busy_loop_and_recovers(directory: Path) -> None:
    embedded = EmbeddedServer.open(directory)
    client(embedded).set("name", "value")
    settings = (directory / "server.conf").read_text()
    (directory / "server.conf").write_text("nonsense\n")

    os.kill(server(directory), signal.SIGKILL)
    with pytest.raises(EmbeddedError, match="does not stay up: Bad directive or wrong number of arguments"):
        embedded.ensure()
    log = (directory / "server.log").read_text()
    assert re.findall(r"again in (.*) s", log)[:3] == ["0", "0.2", "5"]
    (directory / "server.conf").write_text(settings)
    embedded.ensure()

    assert client(embedded).get("name") == b"value"
    embedded.close()


def test_a_server_that_loads_for_long_is_waited_for(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENCE_TIMEOUT_SECONDS", 0.5)
    embedded = EmbeddedServer.open(directory)
    client(embedded).mset({f"name-{n}": "value" * 10 for n in range(1500)})
    client(embedded).bgrewriteaof()
    eventually(lambda: list((directory / "appendonlydir").glob("*.2.base.rdb")))
    eventually(lambda: not client(embedded).info("persistence")["aof_rewrite_in_progress"])
    with (directory / "server.conf").open("a") as settings:
        settings.write("key-load-delay 1000\nloading-process-events-interval-bytes 1024\n")

    began = time.monotonic()
    os.kill(server(directory), signal.SIGKILL)
    eventually(lambda: not answers(embedded))
    embedded.ensure()

    assert time.monotonic() - began > 1
    assert client(embedded).dbsize() == 1500
    embedded.close()


# What users do


def test_a_fork_does_not_keep_the_server_for_its_parent(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    owner = user("if os.fork() == 0: sys.stdin.read(); os._exit(0)")

    owner.kill()

    eventually(lambda: not running(directory))  # and the child still waits for its input


def test_a_fork_that_calls_ensure_is_a_user_of_its_own(
    directory: Path, user: Callable[..., subprocess.Popen[str]]
) -> None:
    owner = user(
        "if os.fork() == 0: embedded.ensure(); os.write(1, b'ready\\n'); sys.stdin.read(); os._exit(0)"
    )
    wait_until_ready(owner)  # the other one of the two
    before = running(directory)

    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    EmbeddedServer.open(directory).close()
    assert running(directory) == before

    assert owner.stdin
    owner.stdin.close()
    eventually(lambda: not running(directory))


def test_a_copy_of_a_used_directory_has_a_server_of_its_own(directory: Path) -> None:
    original = EmbeddedServer.open(directory / "original")
    client(original).set("name", "value")
    shutil.copytree(directory / "original", directory / "copy", ignore=shutil.ignore_patterns("*.sock"))
    (directory / "copy").chmod(0o755)

    copy = EmbeddedServer.open(directory / "copy")

    assert client(copy).get("name") == b"value"
    client(copy).set("name", "changed")
    assert client(original).get("name") == b"value"
    assert mode(copy.directory) == 0o700
    copy.close()
    original.close()


def test_a_long_log_is_put_aside_at_the_next_start(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    (directory / "server.log").write_bytes(b"x" * 1_000_001)

    EmbeddedServer.open(directory).close()

    assert (directory / "server.log.1").stat().st_size == 1_000_001
    assert (directory / "server.log").stat().st_size < 10_000


def eventually(condition: Callable[[], T], within: float = 10) -> T:
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return value


def client(embedded: EmbeddedServer) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=str(embedded.socket), password=embedded.password, retry=Retry(NoBackoff(), 0)
    )


def answers(embedded: EmbeddedServer) -> bool:
    with contextlib.suppress(redis.RedisError):
        return bool(client(embedded).ping())
    return False


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    assert process.stdout.readline() == "ready\n"


def refuses(directory: Path, line: str) -> None:
    with pytest.raises(EmbeddedError) as refusal:
        EmbeddedServer.open(directory)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def locked(file: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def running(directory: Path) -> list[int]:
    """The watchdogs and servers of all directories below this one. Dead ones that nobody reaped do not count."""
    return [pid for pid in pids() if alive(pid) and below(directory, pid)]


def watchdog(directory: Path) -> int:
    [pid] = [pid for pid in running(directory) if "watchdog.py" in cmdline(pid)]
    return pid


def server(directory: Path) -> int:
    [pid] = [pid for pid in running(directory) if "watchdog.py" not in cmdline(pid)]
    return pid


def below(directory: Path, pid: int) -> bool:
    with contextlib.suppress(OSError):
        is_watchdog = "watchdog.py" in cmdline(pid) and str(directory) in cmdline(pid)
        return is_watchdog or Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(directory)
    return False


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def cmdline(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "7:M 15 Nov 2026 22:14:47.800 # Can't recover from AOF write error",
            "Can't recover from AOF write error",
        ),
        ("*** FATAL CONFIG FILE ERROR ***", "*** FATAL CONFIG FILE ERROR ***"),
        ("7:M 15 Nov 2026 22:14:47.800 * DB loaded from append only file", NO_LAST_LINE),
        ("7:M 15 Nov", NO_LAST_LINE),
        ("7:", NO_LAST_LINE),
        ("", NO_LAST_LINE),
    ],
)
def test_what_a_full_disk_has_cut_off_is_no_reason(tmp_path: Path, log: str, words: str) -> None:
    (tmp_path / "log").write_text(log)

    assert last_line(str(tmp_path / "log"), 0) == words
