"""doctor with the code of the next deploy: which durable jobs in flight can it not continue?"""

from __future__ import annotations

import asyncio
import json

import pytest
from shell import Shell, open_shell  # noqa: F401 - a fixture

import qbull
from conftest import eventually
from qbull.manage import unfit_histories

HEAD = """\
import qbull
from steps import charge, ship, weigh

app = qbull.App()
orders = app.queue("orders")
printing = app.queue("printing")
"""
STEPS = """\
async def charge(order: int) -> str: ...
async def ship(order: int) -> str: ...
async def weigh(order: int) -> str: ...
"""
UNCHANGED = """
@printing.task
async def print_label(order: int) -> str: ...

@orders.task(durable=True)
async def fulfil(order: int) -> str:
    job = qbull.current_job()
    payment = await job.step(charge, order)
    await job.call(print_label.step(order))
    await job.wait_for("approval")
    return await job.step(ship, order)
"""


class Deploy:
    """Looks at the server with the next version of the code."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        (shell.directory / "steps.py").write_text(STEPS)

    async def findings(self, code: str) -> list[tuple[str, str]]:
        """Level, and subject with fact and remedy, of the findings about durable tasks."""
        (self._shell.directory / "shop.py").write_text(HEAD + code)
        done = await asyncio.to_thread(self._shell.run, "doctor", "-A", "shop:app", "--json")
        return [
            (one["level"], f"{one['subject']}: {one['fact']}; {one['next']}")
            for one in json.loads(done.out)["findings"]
            if one["subject"].startswith(("task ", "durable tasks"))
        ]


@pytest.fixture(name="deploy")
def make_deploy(shell: Shell) -> Deploy:
    return Deploy(shell)


@pytest.fixture(name="waiting")
async def start_waiting(app: qbull.App) -> qbull.Job[str]:
    """A job that the first version of the code has started, and that waits for a signal."""
    orders, printing = app.queue("orders"), app.queue("printing")

    async def charge(order: int) -> str:
        return f"payment-{order}"

    @printing.task
    async def print_label(order: int) -> str:
        return f"label-{order}"

    @orders.task(durable=True)
    async def fulfil(order: int) -> str:
        job = qbull.current_job()
        await job.step(charge, order)
        label = await job.call(print_label.step(order))
        await job.wait_for("approval")
        return label

    handle = await fulfil.enqueue(7)

    async def waits() -> bool:
        info = await handle.info()
        return info is not None and info.waits_for == ("approval",)

    async with app.worker():
        await eventually(waits)
    return handle


async def test_code_that_asks_for_the_recorded_steps_is_fine(deploy: Deploy, waiting: qbull.Job[str]) -> None:
    assert await deploy.findings(UNCHANGED) == [
        ("ok", "durable tasks: the loaded code knows the recorded steps of the 1 jobs looked at; None")
    ]


async def test_a_step_that_the_code_no_longer_asks_for_is_noted(
    deploy: Deploy, waiting: qbull.Job[str]
) -> None:
    [(level, text)] = await deploy.findings(UNCHANGED.replace("job.step(charge, ", "job.step(weigh, "))

    assert level == "note"
    assert text == (
        f'task "fulfil" of queue "orders": 1 of 1 jobs looked at ({waiting.id}) may not continue: number 1 of '
        'the recorded steps is "charge", and the loaded code does not mention it; keep the old path with '
        f'job.patched() until they have ended; "qbull job orders {waiting.id} --steps" shows the recorded steps'
    )


async def test_a_patched_step_is_fine(deploy: Deploy, waiting: qbull.Job[str]) -> None:
    patched = """\
    if await job.patched("weigh"):
        payment = await job.step(weigh, order)
    else:
        payment = await job.step(charge, order)
"""
    old = "    payment = await job.step(charge, order)\n"

    [(level, _)] = await deploy.findings(UNCHANGED.replace(old, patched))

    assert level == "ok"


async def test_steps_of_helpers_in_other_modules_are_known(
    deploy: Deploy, shell: Shell, waiting: qbull.Job[str]
) -> None:
    (shell.directory / "payments.py").write_text(
        "from steps import charge as pay\n\n"
        "class Payments:\n"
        "    async def collect(self, job, order):\n"
        "        return await job.step(pay, order)\n"
    )
    code = UNCHANGED.replace("await job.step(charge, order)", "await payments.Payments().collect(job, order)")

    [(level, _)] = await deploy.findings("import payments\n" + code)

    assert level == "ok"


@pytest.mark.parametrize(
    ("change", "level", "fact"),
    [
        (("durable=True", ""), "problem", "cannot continue: the task is no longer durable"),
        (("fulfil", "complete"), "problem", "cannot continue: the loaded code does not declare this task"),
        (('wait_for("approval")', "wait_for('consent')"), "note", 'wait in vain for the signal "approval"'),
        (("print_label", "print_sticker"), "note", 'recorded steps is "call print_label"'),
    ],
)
async def test_other_changes_are_named(
    deploy: Deploy, waiting: qbull.Job[str], change: tuple[str, str], level: str, fact: str
) -> None:
    [(found, text)] = await deploy.findings(UNCHANGED.replace(*change))

    assert found == level
    assert fact in text and waiting.id in text


async def test_a_note_about_a_signal_names_a_remedy_that_works(
    deploy: Deploy, shell: Shell, waiting: qbull.Job[str]
) -> None:
    [(_, text)] = await deploy.findings(UNCHANGED.replace('"approval"', '"consent"'))
    command = text.partition('run "qbull ')[2].partition('"')[0]

    assert await asyncio.to_thread(shell.ok, *command.split())
    info = await waiting.info()
    assert info is not None and info.state == "waiting"


async def test_code_that_chooses_its_steps_at_run_time_is_not_judged(
    deploy: Deploy, waiting: qbull.Job[str]
) -> None:
    code = UNCHANGED.replace("job.step(charge, order)", 'job.step(getattr(steps, "chargex"[:6]), order)')

    found = await deploy.findings("import steps\n" + code)

    assert [level for level, _ in found] == ["note", "ok"]
    assert "chooses steps at run time" in found[0][1]


async def test_without_code_nothing_is_compared(shell: Shell, waiting: qbull.Job[str]) -> None:
    done = await asyncio.to_thread(shell.run, "doctor")

    assert "durable tasks" not in done.out and "continue" not in done.out


async def test_of_many_jobs_a_sample_is_looked_at(
    app: qbull.App, waiting: qbull.Job[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queues["orders"]
    await app.send_many("orders", "fulfil", [{"order": order} for order in range(4)])
    async with app.worker():
        await eventually(lambda: _all_wait(queue, 5))
    monkeypatch.setattr(unfit_histories, "MAX_READ_HISTORIES", 2)
    tasks = unfit_histories.LoadedTasks(app.queues)

    [found] = await unfit_histories.look_at_histories(app._client().store, queue, tasks)

    assert (found.looked, found.is_complete, found.unfit) == (2, False, [])
    monkeypatch.setattr(unfit_histories, "MAX_READ_HISTORIES", 100)
    [found] = await unfit_histories.look_at_histories(app._client().store, queue, tasks)
    assert (found.looked, found.is_complete) == (5, True)


async def _all_wait(queue: qbull.Queue, jobs: int) -> bool:
    return len([job for job in await queue.jobs("delayed") if job.suspended == "waiting"]) == jobs
