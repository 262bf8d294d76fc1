"""Asked steps: which recorded steps can the code of a task still ask for? No code of the user runs for the answer."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qbull.core.asked_steps import AskedSteps, helpers_besides
from qbull.core.durable import StepEnd, StepRecord
from qbull.core.reachable_code import OwnModules, ReachableCode

Unasked = Callable[..., str | None]

MODULES = ("shop_of_test", "helpers_of_shop", "steps_of_shop")
HELPERS = """\
import functools
from steps_of_shop import charge, ship, weigh

STEPS = [ship]
TOOLS = {"weight": weigh}
pay = functools.partial(charge, currency="EUR")

def logged(function):
    @functools.wraps(function)
    async def run(*args):
        return await function(*args)
    return run

async def collect(job, order):
    return await job.step(charge, order)

async def run_with(job, function, order):
    return await job.step(function, order)

class Saga:
    def __init__(self, job):
        self.job = job

    @staticmethod
    async def collect(job):
        await job.transaction(None, charge)

    async def run(self):
        await self.collect(self.job)

saga = Saga(None)

def make_saga(job):
    return Saga(job)
"""
STEPS = """\
async def charge(order, currency=""): ...
async def ship(order): ...
async def weigh(order): ...
"""


@pytest.fixture(name="unasked")
def look_into_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unasked]:
    """The first recorded step that the task `fulfil` of a module does not ask for."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helpers_of_shop.py").write_text(HELPERS)
    (tmp_path / "steps_of_shop.py").write_text(STEPS)

    def look(source: str, *names: str, end: StepEnd = "r", tasks: tuple[str, ...] = ()) -> str | None:
        (tmp_path / "shop_of_test.py").write_text(source)
        importlib.invalidate_caches()
        shop = importlib.import_module("shop_of_test")
        # Other tests in this process have helpers of their own.
        modules = OwnModules(MODULES)
        code = ReachableCode(modules, [shop.fulfil])
        asked = AskedSteps(code, helpers_besides([code], modules), tasks)
        records = [StepRecord(number, name, b"", 0, end, b"null") for number, name in enumerate(names, 1)]
        found = asked.first_unasked(records)
        return found.record.name if found is not None else None

    yield look
    for name in MODULES:
        sys.modules.pop(name, None)


def task(*lines: str, head: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"import helpers_of_shop as helpers\n{head}\n\nasync def fulfil(job, order):\n{body}"


def test_a_step_that_is_gone_is_found(unasked: Unasked) -> None:
    source = (
        "from steps_of_shop import ship\n\nasync def fulfil(job, order):\n    await job.step(ship, order)\n"
    )

    assert unasked(source, "charge") == "charge"
    assert unasked(source, "ship", "charge", "ship") == "charge"
    assert unasked(source, "ship") is None


@pytest.mark.parametrize(
    "source",
    [
        task("await helpers.collect(job, order)"),
        task("await helpers.run_with(job, charge, order)", head="from steps_of_shop import charge"),
        task("await helpers.run_with(job, c, order)", head="from steps_of_shop import charge as c"),
        task("await job.step(helpers.pay, order)"),
        task("await job.step(steps_of_shop.charge, order)", head="import steps_of_shop"),
        task("from steps_of_shop import charge as c", "await job.step(c, order)"),
        task("await helpers.Saga(job).run()"),
        task("await helpers.saga.run()"),
        task("await helpers.make_saga(job).run()"),
        task("async def charge(): ...", "await job.step(charge)"),
        task("await job.options(name='charge').step(print)"),
        task(
            "for tool in TOOLS.values():", "    await job.step(tool)", head="TOOLS = {'pay': [helpers.pay]}"
        ),
        task("await job.step(order.gateway.charge)"),
        task("await (lambda: job.step(charge))()", head="from steps_of_shop import charge"),
        task("await pay(job)", head="pay = helpers.logged(helpers.collect)"),
        task("await order.bank(job)", head="class Bank:\n    async def charge(self): ..."),
    ],
)
def test_a_step_that_the_code_reaches_in_any_way_is_no_alarm(unasked: Unasked, source: str) -> None:
    assert unasked(source, "charge") is None


def test_a_helper_that_nobody_is_known_to_call_may_belong_to_any_task(unasked: Unasked) -> None:
    source = task("await order.helper(job)", head="async def lonely(job):\n    await job.step(refund)")

    assert unasked(source, "refund") is None
    assert unasked(source, "unheard_of") == "unheard_of"


def test_the_helper_of_a_task_counts_for_that_task_only(unasked: Unasked) -> None:
    source = task("return await job.step(order.weigh)")

    assert unasked(source, "weigh") is None
    # helpers.collect and Saga.collect ask for it, and no known task calls them.
    assert unasked(source, "charge") is None
    assert unasked(source, "ship") == "ship"


@pytest.mark.parametrize(
    "source",
    [
        task("await job.step(getattr(helpers, order))"),
        task("await job.options(name=f'charge {order}').step(print)"),
        task("await job.options(**order).step(print)"),
        task("from not_loaded_yet import run", "await run(job)"),
    ],
)
def test_code_that_does_not_tell_its_steps_is_not_judged(unasked: Unasked, source: str) -> None:
    assert unasked(source, "unheard_of") is None


@pytest.mark.parametrize(
    ("line", "known", "unknown"),
    [
        ("await job.wait_for('approval', timeout=5)", "wait_for approval", "wait_for consent"),
        ("job.wait_for_sync('approval')", "wait_for approval", "wait_for consent"),
        ("await job.publish('status', order)", "publish status", "publish state"),
        ("await job.patched('v2')", "patched v2", "patched v1"),
        ("await job.checkpoint(order)", "checkpoint page", "sleep"),
        ("await job.sleep(order)", "sleep", "checkpoint page"),
        ("await job.call(order.label.step())", "call label", "call sticker"),
        ("await job.step(order.ship)", "ship", "call label"),
    ],
)
def test_other_calls_are_known_by_their_texts(unasked: Unasked, line: str, known: str, unknown: str) -> None:
    head = "import asyncio\n\nasync def elsewhere(one):\n    await asyncio.wait_for(one, 5)"
    source = task(line, head=head)

    assert unasked(source, known, tasks=("label",)) is None
    assert unasked(source, unknown, tasks=("label",)) == unknown


def test_a_text_that_the_code_computes_fits_every_record(unasked: Unasked) -> None:
    assert unasked(task("await job.wait_for(f'approval of {order}')"), "wait_for approval of 7") is None


def test_a_step_that_runs_again_and_a_sleep_that_has_begun_do_no_harm(unasked: Unasked) -> None:
    source = task("await job.step(order.weigh)")

    assert unasked(source, "unheard_of", end="a") is None
    assert unasked(source, "sleep", end="b") is None
    assert unasked(source, "wait_for approval", end="w") == "wait_for approval"


def test_no_method_of_the_user_is_called(unasked: Unasked) -> None:
    head = (
        "class Proxy:\n"
        "    @property\n"
        "    def __class__(self):\n        raise SystemError\n"
        "    def __getattr__(self, name):\n        raise SystemError\n"
        "    def __iter__(self):\n        raise SystemError\n"
        "    def __eq__(self, other):\n        raise SystemError\n"
        "    __hash__ = None\n"
        "proxy = Proxy()"
    )

    assert unasked(task("await proxy.run(job)", head=head), "unheard_of") == "unheard_of"


@pytest.mark.parametrize(
    "argument",
    ["'approval' + order", "'approval %s' % order", "'approval {}'.format(order)", "'a' and order", "order",
     "'approval'.upper()", "'a' if order else 'b'"],
)  # fmt: skip
def test_a_constant_that_is_only_a_part_is_no_text(unasked: Unasked, argument: str) -> None:
    assert unasked(task(f"await job.wait_for({argument}, timeout=order * 2)"), "wait_for approval 7") is None


@pytest.mark.parametrize(
    "others",
    [
        "",
        ", timeout=order * 2",
        ", type=order.Kind, timeout=float(order)",
        ", type=list[int], hold_lane=not order",
    ],
)
def test_the_text_is_known_whatever_comes_after_it(unasked: Unasked, others: str) -> None:
    source = task(f"await job.wait_for('approval'{others})")

    assert unasked(source, "wait_for approval") is None
    assert unasked(source, "wait_for consent") == "wait_for consent"
