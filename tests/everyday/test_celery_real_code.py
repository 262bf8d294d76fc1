"""From Celery: what real programs use besides tasks and calls: classes, handlers, signals, states, limits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, isnan, nan
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any
from uuid import UUID

import pydantic
import pytest
from blocks import close_apps  # noqa: F401 - a fixture
from shell import Shell, open_shell, seen  # noqa: F401 - one is a fixture

import qbull
from qbull.compat.celery import (
    AsyncResult,
    Celery,
    SoftTimeLimitExceeded,
    Task,
    chain,
    chord,
    crontab,
    get_task_logger,
    group,
    signals,
)
from qbull.compat.celery.soft_limit import call_within
from qbull.store.store import Store

PATIENCE_SECONDS = 60


@pytest.fixture
def app(
    server_url: str, store: Store, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Celery]:
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.setenv("QBULL_URL", server_url)
    closing.append(app := Celery("shop"))
    yield app
    for each in vars(signals).values():
        if isinstance(each, signals.Signal):
            each.receivers.clear()


def run_all(app: qbull.App) -> None:
    async def drain() -> None:
        async with app.worker() as worker:
            await worker.drain()

    app.run_sync(drain())


class Noting(Task):
    """A base class with every handler."""

    abstract = True
    max_retries = 1
    default_retry_delay = 0
    noted: list[tuple[Any, ...]] = []  # noqa: RUF012

    def before_start(self, task_id: Any, args: Any, kwargs: Any) -> None:
        self.noted.append(("start", args, kwargs))

    def on_success(self, retval: Any, task_id: Any, args: Any, kwargs: Any) -> None:
        self.noted.append(("success", retval))

    def on_failure(self, exc: Any, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
        self.noted.append(("failure", type(exc), task_id, str(exc) in str(einfo)))

    def on_retry(self, exc: Any, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
        self.noted.append(("retry", type(exc)))

    def after_return(
        self, status: Any, retval: Any, task_id: Any, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        self.noted.append(("return", status))
        raise RuntimeError("an error in a handler changes nothing")


def test_a_base_class_hears_of_the_start_the_success_the_retry_and_the_failure(app: Celery) -> None:
    Noting.noted = noted = []

    @app.task(base=Noting)
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(base=Noting, autoretry_for=(OSError,))
    def fail() -> None:
        raise ConnectionError("away")

    fine, failed = add.delay(1, y=2), fail.delay()
    run_all(app)

    assert fine.get() == 3
    for expected in (("start", (1, 2), {}), ("success", 3), ("retry", ConnectionError)):
        assert expected in noted
    assert ("failure", ConnectionError, failed.id, True) in noted
    states = sorted(each[1] for each in noted if each[0] == "return")
    assert states == ["FAILURE", "RETRY", "SUCCESS"]
    assert (add.max_retries, fail.max_retries) == (1, 1)


def test_a_class_is_a_task_with_a_method_run(app: Celery) -> None:
    class Add(Task):
        name = "sums.add"
        queue = "sums"

        def __init__(self) -> None:
            self.start = 100

        def run(self, x: int, y: int = 0) -> int:
            return self.start + x + y

    add = app.register_task(Add())
    result = app.send_task("sums.add", (1,), {"y": 2})
    run_all(app)

    assert result.get() == 103
    assert add.name == "sums.add"
    assert add(1) == 101
    assert app.run_sync(app.job("sums", result.id).state()) == "completed"


def test_the_class_of_all_tasks_may_run_them_in_a_context(closing: list[qbull.App], app: Celery) -> None:
    inside: list[str] = []

    class InContext(Task):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            inside.append("in")
            return self.run(*args, **kwargs)

    closing.append(flask := Celery("flask", task_cls=InContext))

    @flask.task
    def hello(name: str) -> str:
        return f"hello {name}"

    result = hello.delay("ann")
    run_all(flask)

    assert result.get() == "hello ann"
    assert inside == ["in"]


def test_an_option_that_celery_does_not_know_is_an_attribute_of_the_task(app: Celery) -> None:
    ended: list[str] = []

    class Billed(Task):
        tariff = "none"

        def on_success(self, retval: Any, task_id: Any, args: Any, kwargs: Any) -> None:
            ended.append(self.tariff)

    @app.task(bind=True, base=Billed, tariff="night", interval_start=5)
    def bill(self: Any, n: int) -> str:
        return f"{n} at {self.tariff}, {self.interval_start}"

    result = bill.delay(3)
    run_all(app)

    assert (result.get(), ended) == ("3 at night, 5", ["night"])
    assert (bill.tariff, Billed.tariff) == ("night", "none")


def test_signals_are_sent_around_each_run_and_each_enqueue(app: Celery) -> None:
    heard: list[Any] = []

    @app.task(name="fine")
    def fine(x: int) -> int:
        return x

    @app.task(name="bad", bind=True, max_retries=1)
    def bad(self: Any) -> None:
        raise self.retry(exc=KeyError("gone"), countdown=0)

    @signals.before_task_publish.connect
    def tag(sender: Any = None, headers: Any = None, **_: Any) -> None:
        headers["tenant"] = {"id": 7}
        heard.append(("before", sender))

    @signals.after_task_publish.connect(sender="fine")
    def sent(sender: Any = None, headers: Any = None, **_: Any) -> None:
        heard.append(("after", sender, headers["id"]))

    @signals.task_prerun.connect(sender=fine)
    def begin(task_id: Any = None, task: Any = None, args: Any = None, **_: Any) -> None:
        heard.append(("prerun", task.name, args, task.request.headers, task.request.tenant))
        raise RuntimeError("an error in a receiver changes nothing")

    for name in ("task_success", "task_retry", "task_failure", "task_postrun"):

        def hear(sender: Any = None, name: str = name, **values: Any) -> None:
            heard.append((name, sender.name, values.get("state"), type(values.get("exception"))))

        getattr(signals, name).connect(hear, dispatch_uid=name)

    result, _ = fine.delay(3), bad.delay()
    run_all(app)

    assert result.get() == 3
    assert ("before", "fine") in heard
    assert ("after", "fine", result.id) in heard
    assert ("prerun", "fine", (3,), {"tenant": {"id": 7}}, {"id": 7}) in heard
    nothing = type(None)
    for expected in (
        ("task_success", "fine", None, nothing),
        ("task_retry", "bad", None, nothing),
        ("task_failure", "bad", None, KeyError),
        ("task_postrun", "fine", "SUCCESS", nothing),
        ("task_postrun", "bad", "RETRY", nothing),
        ("task_postrun", "bad", "FAILURE", nothing),
    ):
        assert expected in heard
    with pytest.raises(ImportError, match=r"task_revoked: use qbull\.Middleware"):
        from qbull.compat.celery.signals import task_revoked  # noqa: F401


def test_signals_of_a_canvas_are_sent_for_each_of_its_tasks(app: Celery) -> None:
    heard: list[str] = []

    @app.task(name="add")
    def add(x, y=0):  # type: ignore[no-untyped-def]
        return x + y, add.request.headers

    signals.before_task_publish.connect(lambda headers, **_: headers.update(by="test"), dispatch_uid=1)
    signals.after_task_publish.connect(lambda headers, **_: heard.append(headers["id"]), dispatch_uid=1)
    result = chain(add.s(1, 1), add.si(3))()
    run_all(app)

    assert result.get() == (3, {"by": "test"})
    assert set(heard) == {result.id, result.parent.id}


def test_a_worker_tells_that_it_starts_and_ends(app: Celery) -> None:
    heard: list[str] = []

    @app.task
    def add(x: int) -> int:
        return x

    names = (
        "setup_logging",
        "worker_process_init",
        "worker_ready",
        "worker_process_shutdown",
        "worker_shutdown",
    )
    for name in names:
        getattr(signals, name).connect(lambda name=name, **_: heard.append(name), dispatch_uid=name)
    add.delay(1)
    run_all(app)

    assert heard == list(names)


def test_a_running_task_reports_a_state_with_values(app: Celery) -> None:
    reported, go_on = Event(), Event()

    @app.task(bind=True)
    def long(self: Any) -> str:
        for done in range(3):
            self.update_state(state="PROGRESS", meta={"current": done, "total": 4, "at": date(2026, 1, 31)})
        reported.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return "done"

    result = long.delay()
    worker = app.worker()
    app.run_sync(worker.start())
    assert reported.wait(PATIENCE_SECONDS)
    seen(lambda: result.state == "PROGRESS", within=PATIENCE_SECONDS)
    meta = {"current": 2, "total": 4, "at": date(2026, 1, 31)}
    seen(lambda: result.info == result.result == meta, within=PATIENCE_SECONDS)
    info = app.run_sync(app.job("celery", result.id).info())
    go_on.set()

    assert result.get(timeout=PATIENCE_SECONDS) == "done"
    assert (result.state, result.info) == ("SUCCESS", "done")
    assert info is not None
    assert info.progress == 50
    app.run_sync(worker.stop())


def test_a_soft_time_limit_is_an_exception_that_the_task_may_catch(app: Celery) -> None:
    cleaned: list[str] = []

    def spin() -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            pass

    @app.task(soft_time_limit=0.2)
    def catches() -> str:
        try:
            spin()
        except SoftTimeLimitExceeded:
            cleaned.append("cleaned")
        return "in time"

    @app.task(soft_time_limit=0.2)
    def does_not_catch() -> None:
        spin()

    @app.task(soft_time_limit=30)
    def quick() -> str:
        return "quick"

    results = [catches.delay(), does_not_catch.delay(), quick.delay()]
    run_all(app)

    assert (results[0].get(), results[2].get(), cleaned) == ("in time", "quick", ["cleaned"])
    with pytest.raises(SoftTimeLimitExceeded):
        results[1].get()


def test_a_soft_time_limit_leaves_nothing_behind_in_the_interpreter() -> None:
    """A withdrawn exception kept the interpreter interrupted: a function call under a profiler never ended."""
    calls: list[str] = []
    call_within(30, calls.append, "in time")
    with pytest.raises(SoftTimeLimitExceeded):
        call_within(0.01, _busy)

    def note(frame: FrameType, event: str, _: object) -> None:
        calls.append(event)

    sys.setprofile(note)
    try:
        calls.count("in time")
        _nothing()
    finally:
        sys.setprofile(None)
    assert calls[0] == "in time" and "call" in calls


def _busy() -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pass


def _nothing() -> None: ...


def test_the_soft_time_limit_of_the_settings_is_that_of_every_task(app: Celery) -> None:
    app.conf.task_soft_time_limit = 7
    app.conf.task_time_limit = 9

    @app.task
    def add(x: int) -> int:
        return x

    assert (add.traits.soft_time_limit, add.traits.time_limit, add.spec.timeout) == (7, 9, 9)


def test_get_raises_an_exception_of_the_tasks_own_class(app: Celery) -> None:
    @app.task
    def fail(kind: str) -> None:
        if kind == "key":
            raise KeyError("missing")
        if kind == "own":
            raise OutOfStock("no more")
        raise qbull.Fail("told so")

    results = [fail.delay(kind) for kind in ("key", "own", "fail")]
    run_all(app)

    with pytest.raises(KeyError) as key:
        results[0].get()
    assert key.value.args == ("missing",)
    with pytest.raises(OutOfStock, match="no more"):
        results[1].get()
    with pytest.raises(qbull.JobFailed, match="told so"):
        results[2].get()
    for result in results:
        with pytest.raises(qbull.JobFailed):
            result.get()


class OutOfStock(Exception):
    def __init__(self, text: str, *, code: int = 1) -> None:
        super().__init__(text)


VALUES = (
    datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4),
    date(2026, 1, 2),
    datetime(2026, 1, 2, 3, 4).time(),
    timedelta(days=-1, microseconds=5),
    Decimal("1.10"),
    UUID(int=7),
    b"\x00\xff",
    {1, 2},
    frozenset(("a",)),
    (1, (2, [3])),
    inf,
    -inf,
    {"__type__": "date", "__value__": "no date"},
    {"nested": [{"deep": (Decimal(1), {3})}], "plain": 1},
    [1, 2.5, "x", None, True],
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_arrives_as_what_it_was_without_an_annotation(app: Celery, value: Any) -> None:
    arrived: list[Any] = []

    @app.task
    def take(given, *more, **named):  # type: ignore[no-untyped-def]
        arrived.extend((given, *more, *named.values()))
        return given

    @app.task
    def loose(given: dict[str, Any], items: list) -> dict:  # type: ignore[type-arg]
        arrived.extend((given["x"], *items))
        return given

    result, inside = take.delay(value, value, name=value), loose.delay({"x": value}, [value])
    run_all(app)

    assert arrived == [value] * 5
    assert [type(each) for each in arrived] == [type(value)] * 5
    assert (result.get(), inside.get()) == (value, {"x": value})
    assert type(result.get()) is type(value)


def test_not_a_number_arrives_as_that(app: Celery) -> None:
    arrived: list[Any] = []

    @app.task
    def take(given):  # type: ignore[no-untyped-def]
        arrived.append(given)
        return [given]

    @app.task
    def half(x: float) -> float:
        return nan

    results = take.delay(nan), half.delay(1.0)
    run_all(app)

    assert isnan(arrived[0])
    assert isnan(results[0].get()[0])
    assert isnan(results[1].get())
    with pytest.raises(qbull.ArgumentsError, match="x: expected float"):
        half.delay(nan)


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, {None: 1}, {"x": {1.5: 2}}])
def test_a_value_that_cannot_arrive_is_refused_at_the_call(app: Celery, value: Any) -> None:
    @app.task
    def take(given):  # type: ignore[no-untyped-def]
        return given

    with pytest.raises(qbull.PayloadError):
        take.delay(value)


def test_functions_with_any_arguments_get_all_of_them(app: Celery) -> None:
    calls: list[Any] = []

    @app.task
    def take(first: int, *rest, flag: bool = False, **more) -> None:  # type: ignore[no-untyped-def]
        calls.append((first, rest, flag, more))

    take.delay(1)
    take.delay(1, 2, "x", flag=True, other=date(2026, 1, 2))
    take.apply_async(kwargs={"first": 3, "z": 1})
    run_all(app)

    assert sorted(calls, key=repr) == [
        (1, (), False, {}),
        (1, (2, "x"), True, {"other": date(2026, 1, 2)}),
        (3, (), False, {"z": 1}),
    ]
    with pytest.raises(qbull.ArgumentsError, match="first: expected int"):
        take.delay("x")


def test_the_request_has_what_the_call_was_made_with(app: Celery) -> None:
    requests: list[Any] = []

    @app.task(bind=True, name="look", throws=(KeyError,), compression="gzip")
    def look(self: Any, x: int, y: int = 0) -> None:
        r = self.request
        requests.append((r.id, r.args, r.kwargs, r.retries, r.headers, r.get("trace"), r.delivery_info))
        assert r.hostname
        assert r.get("nothing", 5) == 5

    result = look.apply_async((1,), {"y": 2}, headers={"trace": [1, 2]}, compression="zlib", retry=False)
    run_all(app)

    where = {"exchange": "", "routing_key": "celery", "priority": 0}
    assert requests == [(result.id, (1, 2), {}, 0, {"trace": [1, 2]}, [1, 2], where)]


def test_the_request_has_the_priority_of_the_call(app: Celery) -> None:
    @app.task(bind=True, name="look", priority=4)
    def look(self: Any) -> Any:
        return self.request.delivery_info["priority"]

    results = [look.apply_async(priority=n) for n in range(10)]
    own, none = look.delay(), app.task(bind=True, name="none")(look.run.func).delay()
    run_all(app)

    assert [result.get() for result in results] == list(range(10))
    assert (own.get(), none.get()) == (4, 0)


def test_models_of_pydantic_are_checked_and_come_back_as_dictionaries(app: Celery) -> None:
    @app.task(pydantic=True)
    def ship(order: Order) -> Order:
        assert isinstance(order, Order)
        return Order(number=order.number + 1)

    results = [ship.delay(Order(number=1)), ship.delay({"number": 5})]
    run_all(app)

    assert [each.get() for each in results] == [{"number": 2}, {"number": 6}]
    with pytest.raises(qbull.ArgumentsError, match="number"):
        ship.delay({"number": "many"})


class Order(pydantic.BaseModel):
    number: int


def test_periodic_tasks_are_added_when_the_app_is_configured(app: Celery) -> None:
    @app.task(name="say")
    def say(text: str) -> str:
        return text

    @app.on_after_configure.connect
    def set_up(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(10.0, say.s("hello"), name="add every 10")
        sender.add_periodic_task(crontab(hour=7, minute=30, day_of_week=1), say.s("happy monday"))

    @app.on_after_finalize.connect
    def more(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(timedelta(minutes=1), app.signature("say", ("minute",)), name="minute")

    app._loaded()

    assert set(app.declared) == {"add-every-10", "say-happy-monday", "minute"}
    assert app.declared["say-happy-monday"].cron == "30 7 * * 1"


def test_a_task_of_another_service_is_enqueued_by_its_name(closing: list[qbull.App], app: Celery) -> None:
    ran: list[Any] = []
    closing.append(other := Celery("other"))
    closing.append(caller := Celery("caller"))

    @other.task(name="other.ship", queue="parcels")
    def ship(number: int, when=None):  # type: ignore[no-untyped-def]
        ran.append((number, when))
        return number

    ship.delay(1)
    by_place = caller.send_task("other.ship", (2, date(2026, 1, 2)), queue="parcels")
    by_name = caller.send_task("other.ship", kwargs={"number": 3}, queue="parcels", countdown=0)
    run_all(other)

    assert (by_place.get(), by_name.get()) == (2, 3)
    assert sorted(ran, key=repr) == [(1, None), (2, date(2026, 1, 2)), (3, None)]
    with pytest.raises(qbull.NotFound, match="nowhere"):
        caller.send_task("other.ship", (1,), queue="nowhere")
    with pytest.raises(qbull.ArgumentsError, match=r"link=….: the task is not declared in this app"):
        caller.send_task("other.ship", (1,), queue="parcels", link=ship.s())


def test_eager_tasks_run_at_the_call(app: Celery) -> None:
    app.conf.task_always_eager = True
    runs: list[int] = []

    @app.task(bind=True, max_retries=2)
    def again(self: Any) -> int:
        runs.append(self.request.retries)
        assert self.request.is_eager
        if self.request.retries < 2:
            raise self.retry(countdown=60)
        return 7

    @app.task
    def add(x, y=0):  # type: ignore[no-untyped-def]
        return x + y

    @app.task
    def fail(*_: Any) -> None:
        raise ValueError("no")

    @app.task
    def total(numbers):  # type: ignore[no-untyped-def]
        return sum(numbers)

    assert (again.delay().get(), runs) == (7, [0, 1, 2])
    assert (add.s(1, 1) | add.s(2) | add.s(3)).delay().get() == 7
    assert group(add.s(1, 1), add.s(2, 2))().get() == [2, 4]
    assert chord([add.s(1, 1), add.s(2, 2)])(total.s()).get() == 6
    failed = chain(add.s(1, 1), fail.s(), add.s(1))()
    assert (failed.state, failed.ready(), failed.successful()) == ("FAILURE", True, False)
    with pytest.raises(ValueError, match="no"):
        failed.get()
    app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="no"):
        fail.delay()
    assert add.apply((1, 2)).get() == 3
    assert app.run_sync(app.queues["celery"].stats()).total == 0


def test_errbacks_of_eager_tasks_get_what_they_get_in_a_worker(app: Celery) -> None:
    app.conf.task_always_eager = True
    noted: list[Any] = []

    @app.task
    def fail() -> None:
        raise ValueError("no")

    @app.task
    def note_id(id: Any) -> None:
        noted.append(id)

    @app.task
    def note_error(request: Any, error: Any, traceback: Any) -> None:
        noted.append((request.id, str(error), "ValueError: no" in traceback))

    result = chain(fail.si(), note_id.s()).apply_async(link_error=[note_id.s(), note_error.s()])

    assert noted == [result.id, (result.id, "no", True)]


def test_a_logger_of_celery_is_a_logger(app: Celery) -> None:
    assert get_task_logger("shop.tasks").name == "shop.tasks"


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app: app.task(base=object)(len), "give a subclass of qbull.compat.celery.Task"),
        (lambda app: app.task(rate_limit="1/s")(int), "rate limits belong to a queue"),
    ],
)
def test_a_class_that_is_no_task_is_refused(app: Celery, declare: Callable[[Celery], Any], says: str) -> None:
    with pytest.raises(qbull.DeclarationError, match=says):
        declare(app)


def test_a_program_with_all_of_it_runs_in_a_worker_of_its_own(
    app: Celery, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_all.py").write_text(
        "from qbull.compat.celery import Celery, Task, signals\n\n"
        'app = Celery("shop")\nstarted = []\n\n\n'
        "@signals.worker_process_init.connect\ndef begin(**_):\n    started.append(1)\n\n\n"
        "class Base(Task):\n    def on_success(self, value, *_):\n        started.append(value)\n\n\n"
        "@app.task(base=Base, bind=True, soft_time_limit=30)\ndef add(self, *numbers):\n"
        "    return sum(numbers) + len(started)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import shop_all  # type: ignore[import-not-found]

    shell.start("worker", "shop_all:app")
    result: AsyncResult = (shop_all.add.s(1, 2) | shop_all.add.s(10)).delay()

    assert result.get(timeout=PATIENCE_SECONDS) == 16
    shop_all.app.close_sync()
