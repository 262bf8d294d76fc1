"""From Celery: chains, groups and chords, with the results that Celery's own workers give."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from blocks import close_apps  # noqa: F401 - a fixture
from canvas_program import PATIENCE_SECONDS, CanvasProgram

import qbull
from qbull.compat.celery import (
    AsyncResult,
    Celery,
    GroupResult,
    Signature,
    chain,
    chord,
    chunks,
    group,
    signature,
    xmap,
)
from qbull.store.store import Store


@pytest.fixture
def program(
    server_url: str, store: Store, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CanvasProgram]:
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.setenv("QBULL_URL", server_url)
    closing.append(app := Celery("shop"))
    made = CanvasProgram(app)
    yield made
    made.stop()


def test_each_task_of_a_chain_gets_the_result_of_the_one_before_as_its_first_argument(
    program: CanvasProgram,
) -> None:
    add = program.add

    written = chain(add.s(2, 2), add.s(4), add.s(8))()
    piped = (add.s(2, 2) | add.s(4) | add.s(8))()

    assert (program.get(written), program.get(piped)) == (16, 16)
    assert (program.get(written.parent), program.get(written.parent.parent)) == (8, 4)
    assert written.parent.parent.parent is None


def test_an_immutable_signature_ignores_the_result_before_it(program: CanvasProgram) -> None:
    add = program.add

    result = chain(add.si(2, 2), add.si(4, 4), add.s(1))()

    assert program.get(result) == 9
    assert program.get(chain(add.s(1, 1), add.signature((5, 5), immutable=True)).delay()) == 10


def test_partial_arguments_come_before_those_of_the_signature(program: CanvasProgram) -> None:
    add = program.add

    assert program.get(add.s(2).delay(4)) == 6
    assert program.get(add.s(y=5).apply_async((1,))) == 6
    assert program.get(chain(add.s(4), add.s(8))(16)) == 28
    assert add.s(2)(3) == 5
    assert [program.get(each) for each in group(add.s(1), add.s(2))(10)] == [11, 12]


def test_a_group_has_the_results_of_its_tasks_in_their_order(program: CanvasProgram) -> None:
    result = group(program.add.s(n, n) for n in range(20))()

    assert program.get(result) == [n + n for n in range(20)]
    assert result.join(timeout=PATIENCE_SECONDS) == program.get(result)
    assert (result.ready(), result.successful(), result.failed(), result.waiting()) == (
        True,
        True,
        False,
        False,
    )
    assert (len(result), result.completed_count()) == (20, 20)
    assert result.children == result.results
    assert all(isinstance(each, AsyncResult) for each in result)
    assert sorted(result.iterate(timeout=PATIENCE_SECONDS)) == [n + n for n in range(20)]


def test_groups_in_a_group_become_one(program: CanvasProgram) -> None:
    add = program.add

    result = group(add.si(1, 10), group(add.si(1, 100), group(add.si(1, 1000))))()

    assert program.get(result) == [11, 101, 1001]


def test_a_chord_gives_the_list_of_results_to_its_body(program: CanvasProgram) -> None:
    add, total = program.add, program.total

    result = chord(add.s(n, n) for n in range(10))(total.s())

    assert program.get(result) == 90
    assert isinstance(result.parent, GroupResult)
    assert program.get(result.parent) == [n + n for n in range(10)]
    assert program.get(chord([add.s(2, 5)], program.same.s())()) == [7]
    assert program.get(chord([], program.same.s())()) == []
    assert program.get(chord([add.s(1, 1), add.s(2, 2)], add.si(5, 5))()) == 10


def test_a_group_before_a_task_is_a_chord(program: CanvasProgram) -> None:
    add, total = program.add, program.total

    piped = (group(add.s(1, 1), add.s(2, 2)) | total.s())()
    in_a_chain = chain(add.s(1, 1), group(add.s(10), add.s(20)), total.s(), add.s(100))()
    one = chain(add.s(1, 1), group(add.s(10)), program.same.s())()

    assert (program.get(piped), program.get(in_a_chain)) == (6, 134)
    assert program.get(one) == 12


def test_a_chain_may_end_with_a_group(program: CanvasProgram) -> None:
    add = program.add

    result = (add.s(4, 4) | group(add.s(1), add.s(2)))()
    twice = (group(add.s(1, 1), add.s(2, 2)) | group(program.total.s(), program.same.s()))()

    assert isinstance(result, GroupResult)
    assert program.get(result) == [9, 10]
    assert program.get(result.parent) == 8
    assert program.get(twice) == [6, [2, 4]]


def test_chains_and_chords_may_be_members_of_groups_and_headers(program: CanvasProgram) -> None:
    add, total, same = program.add, program.total, program.same

    chains = group(add.s(1, 1) | add.s(10), add.s(2, 2) | group(add.s(1), add.s(2)))()
    nested = chord([chord([add.s(1, 1), add.s(2, 2)], total.s()), add.s(5, 5)], same.s())()
    deep = chord([add.s(2, 2) | group(add.s(1), add.s(2)), add.s(9, 9)], same.s())()
    long_body = chord([add.s(1, 1), add.s(2, 2)], total.s() | add.s(100) | add.s(1000))()

    assert program.get(chains) == [12, [5, 6]]
    assert program.get(nested) == [6, 10]
    assert program.get(deep) == [[5, 6], 18]
    assert program.get(long_body) == 1106


def test_map_starmap_and_chunks_call_a_task_for_each_item(program: CanvasProgram) -> None:
    add, total = program.add, program.total

    assert program.get(total.map([[1, 2], [3, 4]]).delay()) == [3, 7]
    assert program.get(add.starmap([(n, 10) for n in range(3)])()) == [10, 11, 12]
    assert program.get(add.chunks([(n, n) for n in range(5)], 2)()) == [[0, 2], [4, 6], [8]]
    assert program.get(chunks(add, [(1, 1)], 2)()) == [[2]]
    assert program.get(chain(xmap(total, [[1], [2]]), total.s())()) == 3
    with pytest.raises(qbull.ArgumentsError, match="missing a required argument"):
        add.starmap([()]).delay()


def test_a_linked_task_gets_the_result_of_the_task_that_succeeded(program: CanvasProgram) -> None:
    add = program.add

    result = add.apply_async((2, 2), link=add.s(16))
    several = add.s(1, 1)
    several.link(add.s(10))
    several.link(add.si(7, 7))
    linked = several.delay()
    on_chain = chain(add.s(1, 1), add.s(2)).apply_async(link=add.s(100))

    assert program.get(result) == 4
    assert [program.get(child) for child in result.children] == [20]
    assert [program.get(child) for child in linked.children] == [12, 14]
    assert (program.get(on_chain), program.get(on_chain.children[0])) == (4, 104)


def test_a_linked_task_does_not_run_after_a_failure_and_the_errback_does(program: CanvasProgram) -> None:
    failed = program.fail.apply_async(
        (1,), link=program.note.s("linked"), link_error=[program.note_id.s(), program.note_error.s()]
    )
    fine = program.add.apply_async((1, 1), link_error=program.note_id.s())

    with pytest.raises(LookupError, match="nothing here"):
        program.get(failed)
    assert program.get(fine) == 2
    program.settle()

    [id] = [each for each in program.noted if isinstance(each, str)]
    [(seen, error, traceback)] = [each for each in program.noted if isinstance(each, tuple)]
    assert id == seen == failed.id
    assert isinstance(error, LookupError)
    assert str(error) == "nothing here"
    assert "nothing here" in traceback


def test_the_callback_of_a_group_runs_after_its_first_task(program: CanvasProgram) -> None:
    group_of_two = group(program.add.s(1, 1), program.add.s(2, 2))
    group_of_two.link(program.note.s("called"))

    assert program.get(group_of_two.delay()) == [2, 4]
    program.settle()
    assert program.noted == [("called",)]
    with pytest.raises(qbull.ArgumentsError, match="the group is empty"):
        group().link(program.note.s())


def test_the_errback_of_a_chain_runs_once_with_the_task_that_failed(program: CanvasProgram) -> None:
    add = program.add
    work = chain(add.s(1, 1), program.fail.s(), add.s(1), add.s(2))

    result = work.apply_async(link_error=program.note_id.s())

    with pytest.raises(LookupError, match="nothing here"):
        program.get(result)
    program.settle()
    assert program.noted == [result.parent.parent.id]
    assert (result.state, result.parent.parent.parent.state) == ("FAILURE", "SUCCESS")


def test_the_errback_of_a_task_is_not_called_for_a_failure_before_it(program: CanvasProgram) -> None:
    result = chain(program.fail.s(), program.add.s(1).on_error(program.note_id.s()))()

    with pytest.raises(LookupError):
        program.get(result)
    program.settle()
    assert program.noted == []


def test_a_failure_in_the_header_of_a_chord_calls_the_errback_of_its_body(program: CanvasProgram) -> None:
    body = program.total.s().on_error(program.note_id.s())

    result = chord([program.add.s(1, 1), program.fail.s()], body)()

    with pytest.raises(LookupError, match="nothing here"):
        program.get(result)
    program.settle()
    assert program.noted == [result.id]
    assert result.parent.failed()


def test_an_immutable_errback_gets_its_own_arguments_only(program: CanvasProgram) -> None:
    result = program.fail.s().on_error(program.note.si("told")).delay()

    with pytest.raises(LookupError):
        program.get(result)
    program.settle()
    assert program.noted == [("told",)]


def test_values_pass_from_task_to_task_as_what_they_are(program: CanvasProgram) -> None:
    app = program.app
    seen: list[Any] = []
    app.queue("typed")

    values = (date(2026, 1, 31), Decimal("1.10"), {"when": datetime(2026, 1, 1, tzinfo=UTC)}, {1, 2})

    @app.task
    def make():  # type: ignore[no-untyped-def]
        return values

    @app.task
    def read(made, more=(1, 2)):  # type: ignore[no-untyped-def]
        seen.append((made, more))
        return made

    written = chain(make.s(), read.s())()
    program.settle()

    assert program.get(written) == values
    assert seen == [(values, (1, 2))]


def test_annotations_decide_which_type_a_passed_value_has(program: CanvasProgram) -> None:
    app = program.app

    @app.task
    def day() -> date:
        return date(2026, 1, 31)

    @app.task
    def year(of: date) -> int:
        return of.year

    written = chain(day.s(), year.s())()
    unfit = chain(program.add.s(1, 1), year.s())()
    program.settle()

    assert program.get(written) == 2026
    with pytest.raises(qbull.JobFailed, match="of: expected"):
        program.get(unfit)


def test_options_of_signatures_and_canvases_arrive_at_their_tasks(program: CanvasProgram) -> None:
    app, add = program.app, program.add
    app.queue("mail")

    last = chain(add.s(1, 1).set(queue="mail"), add.s(2)).apply_async(task_id="end", countdown=3600)
    both = group(add.s(1, 1), add.s(2, 2)).apply_async(queue="mail", countdown=3600)

    first = app.run_sync(app.job("mail", last.parent.id).info())
    assert last.id == "end"
    assert first is not None
    assert first.due_at is not None
    assert [app.run_sync(app.job("mail", each.id).state()) for each in both] == ["delayed", "delayed"]
    both.revoke()
    last.parent.revoke()
    assert [each.state for each in both] == ["REVOKED", "REVOKED"]


def test_a_canvas_with_an_id_is_enqueued_once(program: CanvasProgram) -> None:
    work = chain(program.add.s(1, 1), program.add.s(2))
    linked = {"task_id": "linked", "link": program.note.s(), "link_error": program.note_id.s()}

    first, again = work.apply_async(task_id="once"), work.apply_async(task_id="once")
    results = [program.same.apply_async(("x",), **linked) for _ in range(2)]
    assert (program.get(first), program.get(again)) == (4, 4)
    assert [program.get(each) for each in results] == ["x", "x"]
    program.settle()

    assert program.noted == [("x",)]
    assert program.app.run_sync(program.app.queues["celery"].stats()).completed == 4


def test_a_signature_may_be_an_argument_and_comes_from_a_name_or_a_dictionary(program: CanvasProgram) -> None:
    app, add = program.app, program.add

    @app.task
    def later(call):  # type: ignore[no-untyped-def]
        return signature(call).apply_async().id

    id = later.delay(add.s(2, 3) | add.s(4))
    program.settle()

    assert program.get(app.AsyncResult(program.get(id))) == 9
    assert program.get(app.signature(add.name, args=(1, 2)).delay()) == 3
    assert program.get(signature(dict(add.s(3, 4))).delay()) == 7
    copied = add.s(1).clone((5,), queue="mail")
    assert (copied.args, copied.options, add.s(1).options) == ([5, 1], {"queue": "mail"}, {})
    assert isinstance(signature(dict(chord([add.s(1)], add.s(2)))), Signature)
    assert repr(add.s(1, y=2)).endswith("add(1, y=2)")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: chain(p.add.s(1, 1), p.total.s(1, 2)), "too many positional arguments; one argument from"),
        (lambda p: group(p.add.s(1)).apply_async(link=p.add.s()), "group: link: set it on each task"),
        (lambda p: chord([p.add.s(1)]), "chord: it has no body"),
        (lambda p: chord(chain(p.add.s(1), p.add.s(2)), p.total.s()), "its header is a chain"),
        (lambda p: p.add.s(1, 2).on_error(chain(p.note.s(), p.note.s())), "link_error: .* give a task"),
        (lambda p: chain(p.add), "is no signature; use task.s"),
        (lambda p: p.add.s(1, 2, 3), "too many positional arguments"),
        (lambda p: p.add.s(1, 2).set(shadow="x"), "a job has the name of its task"),
    ],
)
def test_a_canvas_that_cannot_run_is_refused_at_the_call(
    program: CanvasProgram, make: Any, says: str
) -> None:
    with pytest.raises(qbull.QbullError, match=says):
        make(program).apply_async()

    assert program.app.run_sync(program.app.queues["celery"].stats()).total == 0


def test_a_wait_that_takes_too_long_raises_celerys_name_and_pythons(program: CanvasProgram) -> None:
    from qbull.compat.celery import TimeoutError as TooLate

    result = program.add.apply_async((1, 1), countdown=3600)

    with pytest.raises(TooLate):
        result.get(timeout=0.01)
    with pytest.raises(TimeoutError):
        group(program.add.s(1, 1).set(countdown=3600))().get(timeout=0.01)
    result.revoke()


@pytest.mark.parametrize("is_allowed", [False, True])
def test_errbacks_of_a_chord_reach_its_header_if_the_setting_says_so(
    program: CanvasProgram, is_allowed: bool
) -> None:
    program.app.conf.task_allow_error_cb_on_chord_header = is_allowed
    header = [program.fail.si(), program.same.si(1), program.fail.si()]
    whole = chord(header, program.total.s())
    whole.link_error(program.note.si("called"))

    with pytest.raises(LookupError):
        program.get(whole.delay())
    program.settle()

    assert program.noted == [("called",)] * (3 if is_allowed else 1)
    assert all("link_error" not in each.options for each in header)
