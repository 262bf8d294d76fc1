"""demo: it does what it says, and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

from qbull.cli.demo.once import ACCOUNT_COUNT, PAYMENT_COUNT, check_ledger

LEDGER = [
    f"account-{n} {step} 1 {word}"
    for step in range(1, PAYMENT_COUNT + 1)
    for n in range(ACCOUNT_COUNT)
    for word in ("starts", "ends")
]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The place for temporary files of a demo. Its path is short, as the paths of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="q") as directory:
        yield Path(directory)


def left_behind(directory: Path) -> list[str]:
    """Files there, and processes that name the directory or work in it."""
    found = [path.name for path in directory.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace")
            if str(directory) in words or (process / "cwd").readlink().is_relative_to(directory):
                found.append(words)
        except OSError:
            continue
    return found


def test_the_sample_workload_runs_to_its_end(shell: Shell, temporary: Path) -> None:
    out = shell.ok("demo", "--once", TMPDIR=str(temporary))

    table = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert table["all"] == ["392", "380", "59", "12"]  # enqueued, completed, retried, failed
    assert "order: kept for each of 12 accounts" in out
    assert left_behind(temporary) == []


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_the_live_demo_ends_with_a_signal(shell: Shell, temporary: Path, name: signal.Signals) -> None:
    demo = shell.start("demo", TMPDIR=str(temporary))
    seen(
        lambda: (
            " 0 jobs/s" not in (shell.out.strip().splitlines() or [" 0 jobs/s"])[-1] and "jobs/s" in shell.out
        )
    )

    demo.send_signal(name)

    assert demo.wait(15) == 0
    assert shell.err == ""
    assert left_behind(temporary) == []


def test_the_live_demo_has_a_dashboard(shell: Shell, temporary: Path) -> None:
    demo = shell.start("demo", TMPDIR=str(temporary))
    said = seen(lambda: re.search(r"dashboard: (http://\S+)/ui, user admin, password (\S+)", shell.out))
    assert said is not None

    url, password = said.groups()
    queues = httpx.get(f"{url}/api/queues/stats", auth=("admin", password), trust_env=False, timeout=30)

    assert set(queues.json()["queues"]) >= {"email", "payments", "reminders", "reports"}
    link = re.search(r"log in once: http://\S+/ui/#login=(\S+)", shell.out)
    assert link is not None
    with httpx.Client(base_url=url, trust_env=False, timeout=30, headers={"origin": url}) as somebody:
        assert somebody.post("/api/login", json={"code": link[1]}).status_code == 200
        assert somebody.get("/api/me").json()["role"] == "admin"
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(15) == 0
    assert left_behind(temporary) == []


def test_an_interrupted_workload_ends_with_130(shell: Shell, temporary: Path) -> None:
    demo = shell.start("demo", "--once", TMPDIR=str(temporary))
    seen(lambda: list(temporary.glob("*/ledger")))

    demo.send_signal(signal.SIGINT)

    assert demo.wait(15) == 130
    assert left_behind(temporary) == []


def test_the_data_of_a_demo_can_be_kept_and_looked_at(shell: Shell) -> None:
    shell.ok("demo", "--once", "--dir", "my demo")

    options = ("--url", "embedded://my%20demo/valkey", "--prefix", "demo")
    assert {queue["name"] for queue in shell.json("queues", *options)} == {
        "email",
        "payments",
        "reminders",
        "reports",
    }
    assert len(shell.json("jobs", "email", "--state", "failed", *options)) == 8


def test_a_directory_that_cannot_be_is_said(shell: Shell) -> None:
    (shell.directory / "file").touch()

    assert "file" in shell.refused("demo", "--once", "--dir", "file/demo")


def test_the_order_is_checked_really() -> None:
    assert check_ledger("\n".join(LEDGER)) == []

    swapped = [*LEDGER]
    swapped[0], swapped[2 * ACCOUNT_COUNT] = swapped[2 * ACCOUNT_COUNT], swapped[0]
    overlapping = [line for line in LEDGER if line != "account-3 4 1 ends"]
    twice = ["account-0 1 1 starts", "account-0 1 1 ends", *LEDGER]
    for wrong in (swapped, overlapping, twice, LEDGER[:-1], LEDGER[2:], []):
        assert check_ledger("\n".join(wrong)) != []


def test_a_payment_may_be_retried_before_the_next_one() -> None:
    at = LEDGER.index("account-3 4 1 ends")
    retried = [*LEDGER[: at + 1], "account-3 4 2 starts", "account-3 4 2 ends", *LEDGER[at + 1 :]]
    too_late = [*LEDGER, "account-3 4 2 starts", "account-3 4 2 ends"]

    assert check_ledger("\n".join(retried)) == []
    assert check_ledger("\n".join(too_late)) != []
