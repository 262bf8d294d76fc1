"""From Celery: `self.replace(…)` leaves the work of a task to others, and their outcome is its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blocks import close_apps  # noqa: F401 - a fixture
from canvas_program import PATIENCE_SECONDS, CanvasProgram
from shell import Shell, open_shell  # noqa: F401 - one is a fixture

import qbull
from qbull.compat.celery import AsyncResult, Celery, Signature, Task, chain, chord, group, signals
from qbull.compat.celery.exceptions import ImproperlyConfigured
from qbull.store.store import Store
from topology import wait_for


class ReplacingProgram(CanvasProgram):
    """Its task `replaced` is replaced by the canvas that it gets."""

    def __init__(self, app: Celery) -> None:
        super().__init__(app)
        self.runs = 0
        program = self

        @app.task(bind=True)
        def replaced(self, *before, by):  # type: ignore[no-untyped-def]
            program.runs += 1
            raise self.replace(Signature.from_dict(by))

        @app.task(bind=True)
        async def replaced_async(self, by):  # type: ignore[no-untyped-def]
            return self.replace(Signature.from_dict(by))

        self.replaced, self.replaced_async = replaced, replaced_async


@pytest.fixture
def program(
    server_url: str, store: Store, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ReplacingProgram]:
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.setenv("QBULL_URL", server_url)
    closing.append(app := Celery("shop"))
    made = ReplacingProgram(app)
    yield made
    made.stop()


@pytest.mark.parametrize("name", ["replaced", "replaced_async"])
@pytest.mark.parametrize(
    "kind", ["task", "chain", "group", "chord", "chain to group", "group of one", "callback"]
)
def test_the_result_of_a_replaced_task_is_that_of_its_replacement(
    program: ReplacingProgram, name: str, kind: str
) -> None:
    add, total = program.add, program.total
    by, wanted = {
        "task": (add.s(2, 3), 5),
        "chain": (chain(add.s(1, 1), add.s(10)), 12),
        "group": (group(add.s(1, 1), add.s(2, 2)), [2, 4]),
        "chord": (chord([add.s(1, 1), add.s(2, 2)], total.s()), 6),
        "chain to group": (chain(add.s(1, 1), group(add.s(10), add.s(20))), [12, 22]),
        "group of one": (group([add.s(1, 1)]), [2]),
        "callback": (add.signature((2, 3), link=program.note.s()), 5),
    }[kind]

    result = getattr(program, name).delay(by=by)

    assert program.get(result) == wanted
    assert result.state == "SUCCESS"
    program.settle()
    assert program.noted == ([(5,)] if kind == "callback" else [])
    assert program.runs == (1 if name == "replaced" else 0)


def test_whatever_waits_for_a_replaced_task_waits_for_its_replacement(program: ReplacingProgram) -> None:
    add, total, replaced = program.add, program.total, program.replaced
    by_chain = replaced.s(by=chain(add.s(1, 1), add.s(10)))

    in_chain = chain(add.s(0, 0), by_chain, add.s(100)).delay()
    in_chord = chord([add.s(1, 1), replaced.s(by=add.s(2, 2)), by_chain], total.s()).delay()
    group_in_chain = chain(replaced.si(by=group(add.s(1, 1), add.s(2, 2))), total.s()).delay()
    callback = replaced.apply_async(kwargs={"by": by_chain}, link=program.note.s())

    assert program.get(in_chain) == 112
    assert program.get(in_chord) == 18
    assert program.get(group_in_chain) == 6
    assert program.get(callback) == 12
    program.settle()
    assert program.noted == [(12,)]


@pytest.mark.parametrize("place", ["last", "first", "member"])
def test_a_replaced_task_fails_with_the_error_of_its_replacement(
    program: ReplacingProgram, place: str
) -> None:
    add, fail = program.add, program.fail
    by = {
        "last": chain(add.s(1, 1), fail.s()),
        "first": chain(fail.s(), add.s(1), add.s(2)),
        "member": chord([add.s(1, 1), fail.s()], program.total.s()),
    }[place]

    result = program.replaced.apply_async(kwargs={"by": by}, link_error=program.note_error.s())

    with pytest.raises(LookupError, match="nothing here"):
        program.get(result)
    assert result.state == "FAILURE"
    assert "in fail" in (result.traceback or "")
    program.settle()
    [(failed, error, traceback)] = program.noted
    assert failed == result.id
    assert isinstance(error, LookupError)
    assert "in fail" in traceback


def test_a_failed_task_that_was_replaced_can_be_redriven(program: ReplacingProgram) -> None:
    calls: list[int] = []

    @program.app.task
    def succeed_later():  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == 1:
            raise LookupError("not yet")
        return "done"

    result = program.replaced.delay(by=succeed_later.s())
    program.settle()
    assert result.state == "FAILURE"

    program.app.run_sync(result._found().retry())
    program.settle()

    assert result.get() == "done"
    assert program.runs == 2


def test_a_replacement_may_be_replaced(program: ReplacingProgram) -> None:
    by = program.replaced.s(by=chain(program.add.s(1, 1), program.replaced.s(by=program.add.si(20, 1))))

    assert program.get(program.replaced.delay(by=by)) == 21


DYING_SHOP = """
import os
from pathlib import Path

from qbull.compat.celery import Celery
from qbull.worker.durable import DurableRun

app = Celery("shop")
start = DurableRun._start_call


async def start_and_die_once(run, key, call):
    record = await start(run, key, call)
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), 9)
    return record


if "SHOP_DIES" in os.environ:
    DurableRun._start_call = start_and_die_once


def append(name):
    with open(name, "a") as file:
        file.write("1")


@app.task
def effect(n):
    append("effects")
    return n


@app.task(bind=True)
def replaced(self, n):
    append("runs")
    raise self.replace(effect.s(n) | effect.s())
"""


def test_a_worker_that_dies_when_the_replacement_has_started_does_not_start_another(
    program: ReplacingProgram,
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    closing: list[qbull.App],
) -> None:
    (tmp_path / "dying_shop.py").write_text(DYING_SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    import dying_shop  # type: ignore[import-not-found]

    closing.append(dying_shop.app)
    result = dying_shop.replaced.delay(7)
    shell.start("worker", "dying_shop:app", "--processes", "1", SHOP_DIES="yes")

    assert result.get(timeout=PATIENCE_SECONDS) == 7
    assert (tmp_path / "died").exists()
    assert (tmp_path / "runs").read_text() == "1"
    assert (tmp_path / "effects").read_text() == "11"


def test_revoking_a_replaced_task_revokes_its_replacement(program: ReplacingProgram) -> None:
    by = program.note.signature((1,), countdown=3600, task_id="later")
    result = program.replaced.delay(by=by)
    program.work()
    later = AsyncResult("later", program.app)
    wait_for(lambda: later._info() is not None and result._info().state == "delayed", PATIENCE_SECONDS)

    result.revoke()

    wait_for(lambda: later.state == "REVOKED", PATIENCE_SECONDS)
    assert result.state == "REVOKED"
    assert program.noted == []


def test_an_empty_chain_replaces_nothing_and_an_empty_group_is_an_empty_list(
    program: ReplacingProgram,
) -> None:
    with pytest.raises(ImproperlyConfigured, match="the chain is empty"):
        program.get(program.replaced.delay(by=chain()))

    assert program.get(program.replaced.delay(by=group())) == []


def test_a_replaced_task_tells_its_class_and_the_signals(program: ReplacingProgram) -> None:
    told: list[Any] = []

    class Telling(Task):
        def on_replace(self, sig: Any) -> Any:
            told.append(("replace", sig.task))
            return super().on_replace(sig.clone((10,)))

        def on_success(self, retval: Any, task_id: Any, args: Any, kwargs: Any) -> None:
            told.append(("success", retval))

    @program.app.task(bind=True, base=Telling)
    def ten_more(self, n):  # type: ignore[no-untyped-def]
        self.replace(program.add.s(n))

    def after(sender: Any, state: str, **_: Any) -> None:
        told.append((sender.name.rpartition(".")[2], state))

    signals.task_postrun.connect(after)
    try:
        assert program.get(ten_more.delay(1)) == 11
    finally:
        signals.task_postrun.disconnect(after)

    assert told == [("replace", program.add.name), ("ten_more", "IGNORED"), ("add", "SUCCESS")]


def test_a_class_may_decide_that_a_task_is_not_replaced(program: ReplacingProgram) -> None:
    class Keeping(Task):
        def on_replace(self, sig: Any) -> Any:
            return f"not {sig.task}"

    @program.app.task(bind=True, base=Keeping)
    def kept(self):  # type: ignore[no-untyped-def]
        return self.replace(program.add.s(1))

    assert program.get(kept.delay()) == f"not {program.add.name}"


def test_a_task_that_runs_here_is_replaced_here(program: ReplacingProgram) -> None:
    by = chain(program.add.s(1, 1), program.add.s(10))

    assert program.replaced.apply(kwargs={"by": by}).get() == 12
    assert program.replaced.apply(kwargs={"by": group(by, by)}).get() == [12, 12]
    assert program.replaced.apply(kwargs={"by": program.fail.s()}).state == "FAILURE"
    with pytest.raises(qbull.ArgumentsError, match="called directly"):
        program.replaced(by=by)


def test_a_job_for_a_list_of_items_cannot_be_replaced(program: ReplacingProgram) -> None:
    @program.app.task(bind=True)
    def each(self, n):  # type: ignore[no-untyped-def]
        self.replace(program.add.s(n))

    with pytest.raises(qbull.ArgumentsError, match="use a group instead of map"):
        program.get(each.map([1, 2]).delay())


def test_tasks_cannot_be_added_to_a_chord_that_runs(program: ReplacingProgram) -> None:
    with pytest.raises(AttributeError, match=r"use self\.replace\(group"):
        program.replaced.add_to_chord(program.add.s(1))


def test_a_replacement_of_several_jobs_needs_a_server(program: ReplacingProgram) -> None:
    from qbull import testing

    with testing.inline(program.app):
        assert program.replaced.delay(by=program.add.s(1, 2)).get() == 3
        with pytest.raises(qbull.QbullError, match="a flow needs a server"):
            program.replaced.delay(by=chain(program.add.s(1, 2), program.add.s(3))).get()


def test_a_signed_and_compressed_replacement_arrives(
    program: ReplacingProgram, closing: list[qbull.App]
) -> None:
    codecs = [qbull.Compressed(over=0), qbull.Signed([b"k" * 32])]
    closing.append(app := Celery("sealed", middleware=codecs))
    sealed = ReplacingProgram(app)
    try:
        by = chain(sealed.add.s(1, 1), group(sealed.add.s(10), sealed.add.s(20)))
        assert sealed.get(sealed.replaced.delay(by=by)) == [12, 22]
    finally:
        sealed.stop()
