"""From Celery: tasks that are declared before the app, tasks with their own apply_async, limits of one call."""

from __future__ import annotations

import time
from typing import Any

import pytest
from blocks import close_apps  # noqa: F401 - a fixture

import qbull
from qbull.compat.celery import (
    AsyncResult,
    Celery,
    SoftTimeLimitExceeded,
    Task,
    chain,
    group,
    shared_task,
)
from qbull.compat.celery import (
    app as app_module,
)
from qbull.compat.celery.exceptions import TaskRevokedError
from qbull.compat.celery.result import GroupResult, result_from_tuple
from qbull.store.store import Store

SOON_SECONDS = 30


@pytest.fixture
def app(server_url: str, store: Store, closing: list[qbull.App]) -> Celery:
    closing.append(app := Celery("shop", broker=server_url, prefix="test"))
    return app


def run_all(app: qbull.App) -> None:
    async def drain() -> None:
        async with app.worker() as worker:
            await worker.drain()

    app.run_sync(drain())


def test_a_shared_task_may_be_declared_before_the_app(
    server_url: str, store: Store, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "_current", None)

    @shared_task
    def early(x: int) -> int:
        """Double a number."""
        return x * 2

    @shared_task(name="shop.bound", bind=True, queue="mail")
    def bound(self: Any, x: int) -> str:
        return f"{self.request.id}: {x}"

    with pytest.raises(qbull.DeclarationError, match=r"there is no Celery\(…\) yet"):
        early.delay(1)
    closing.append(app := Celery("shop", broker=server_url, prefix="test"))
    app.conf.task_default_queue = "everything"

    assert (early(4), early.__doc__, early.name) == (8, "Double a number.", f"{__name__}.early")
    results = [
        early.delay(5),
        bound.delay(6),
        chain(early.s(1), early.s())(),
        app.send_task("shop.bound", [7]),
    ]
    run_all(app)

    assert [each.get(SOON_SECONDS) for each in results] == [
        10,
        f"{results[1].id}: 6",
        4,
        f"{results[3].id}: 7",
    ]
    assert set(app.queues) == {"everything", "mail"}


def test_a_worker_knows_shared_tasks_that_nothing_has_used(
    server_url: str, store: Store, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "_current", None)
    shared_task(name="shop.unused")(lambda: 5)
    closing.append(app := Celery("shop", broker=server_url, prefix="test"))

    [assignment] = app._assignments()

    assert "shop.unused" in assignment.tasks


class TenantTask(Task):
    """Adds the tenant to each call, as programs with several tenants do."""

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        headers = {**(options.pop("headers", None) or {}), "tenant": "acme"}
        return super().apply_async(args, kwargs, headers=headers, **options)


def test_each_way_to_call_a_task_uses_its_own_apply_async(app: Celery) -> None:
    seen: list[tuple[Any, Any]] = []

    @app.task(bind=True, base=TenantTask)
    def see(self: Any, x: int = 0) -> int:
        seen.append((x, self.request.headers.get("tenant")))
        return x

    see.delay(1)
    see.apply_async((2,), link=see.si(3))
    see.s(4).delay()
    see.s(5).apply_async(countdown=0)
    chain(see.si(6), see.si(7))()
    group(see.s(8), see.s(9))()
    (group(see.s(10), see.s(11)) | see.si(12)).delay()
    run_all(app)

    assert sorted(seen) == [(n, "acme") for n in range(1, 13)]


def test_an_own_apply_async_may_answer_without_a_job_but_not_in_a_canvas(app: Celery) -> None:
    class Quiet(Task):
        def apply_async(self, *args: Any, **options: Any) -> Any:
            return None

    @app.task(base=Quiet, name="quiet")
    def quiet() -> None: ...

    assert quiet.s().delay() is None
    with pytest.raises(qbull.ArgumentsError, match=r'"quiet": its own apply_async makes no call'):
        chain(quiet.si(), quiet.si())()


def test_a_call_may_have_a_soft_time_limit_of_its_own(app: Celery) -> None:
    @app.task(soft_time_limit=60)
    def slow(seconds: float) -> str:
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(0.01)
        except SoftTimeLimitExceeded:
            return "stopped"
        return "done"

    results = [slow.apply_async((30,), soft_time_limit=0.2), slow.delay(0)]
    run_all(app)

    assert [each.get(SOON_SECONDS) for each in results] == ["stopped", "done"]


def test_a_revoked_task_raises_celerys_exception(app: Celery) -> None:
    @app.task
    def add(x: int) -> int:
        return x

    (result := add.delay(1)).revoke()

    with pytest.raises(TaskRevokedError):
        result.get(SOON_SECONDS)


def test_results_can_be_kept_as_their_ids(app: Celery) -> None:
    @app.task
    def add(x: int, y: int = 0) -> int:
        return x + y

    both = (add.s(1) | group(add.s(1), add.s(2)))()
    one = add.delay(7)
    kept = [both.as_tuple(), one.as_tuple()]
    run_all(app)

    several, single = (result_from_tuple(each) for each in kept)
    assert isinstance(several, GroupResult)
    assert isinstance(single, AsyncResult)
    assert (several.get(SOON_SECONDS), several.parent.get(SOON_SECONDS)) == ([2, 3], 1)
    assert single.get(SOON_SECONDS) == 7
