"""qbull limits: see and change shared limits from a shell that has only the server's address."""

from __future__ import annotations

import pytest
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures

import qbull
from conftest import eventually
from qbull.store.store import Store


@pytest.fixture(name="api_calls")
async def run_some(app: qbull.App, store: Store) -> qbull.Queue:
    """One job of a limit has run, and two wait for it."""
    queue = app.queue("work")

    @queue.task(limit=qbull.Limit("api", rate=qbull.Rate(1, per=600)).use(key="{customer}"))
    async def call(customer: str) -> None: ...

    async with app.worker():
        for _ in range(3):
            await call.enqueue("ada")

        async def two_wait() -> bool:
            stats = await queue.stats()
            return (stats.completed, stats.waiting) == (1, 2)

        await eventually(two_wait)
    return queue


async def test_limits_are_listed_and_shown(shell: Shell, api_calls: qbull.Queue) -> None:
    listed = shell.ok("limits")
    shown = shell.ok("limits", "show", "api")
    [limit] = shell.json("limits")

    row = next(line for line in listed.splitlines() if line.startswith("api"))
    assert "0/1 in 600 s" in row
    assert (limit["waiting"], limit["queues"]) == (2, {"work": 2})
    assert limit["keys"] == [{"key": "ada", "running": 0, "used": 1, "spent": 0, "waiting": 2}]
    assert next(line for line in shown.splitlines() if line.startswith("ada")).split() == [
        "ada", "0", "1", "0", "2",
    ]  # fmt: skip


async def test_a_limit_is_set_and_reset(shell: Shell, api_calls: qbull.Queue) -> None:
    changed = shell.ok("limits", "set", "api", "--rate", "5/60", "--concurrency", "2", "--reason", "incident")
    [limit] = shell.json("limits")
    after = shell.ok("limits", "reset", "api", "rate")
    entries = shell.json("audit")

    assert "0/5 in 60 s *" in changed and "0/2 *" in changed
    assert (limit["rate"], limit["concurrency"]) == ({"count": 5, "per": 60.0}, 2)
    assert limit["changed"] == ["rate", "concurrency"]
    assert "0/1 in 600 s" in after and "0/2 *" in after
    assert [one["action"] for one in entries if one["target"] == "api"][:2] == ["reset limit", "change limit"]


async def test_wrong_calls_for_limits_are_refused_in_one_line(shell: Shell, sample: SampleApp) -> None:
    assert 'limit "no": no worker has declared it' in shell.refused("limits", "set", "no", "--daily", "5")
    assert "give at least one setting: rate" in shell.refused("limits", "set", "no")
    assert "whole number" in shell.refused("limits", "set", "no", "--daily", "much", code=2)
    assert "no shared limits" in shell.run("limits").err


async def test_the_doctor_names_a_limit_on_which_two_apps_disagree(
    shell: Shell, app: qbull.App, server_url: str
) -> None:
    other = qbull.App(server_url, prefix="test")
    for each, count in ((app, 100), (other, 500)):

        @each.queue(f"work-{count}", limit=qbull.Limit("openai", rate=qbull.Rate(count, per=60))).task
        async def call() -> None: ...

    async with app.worker(), other.worker():
        said = shell.run("doctor").out
    await other.close()

    assert 'limit "openai": the code of live workers declares it with 2 different values' in said
