"""From Celery: names that programs import from its modules."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import close_apps  # noqa: F401 - a fixture

import qbull
from qbull.compat.celery import Celery, current_app, current_task, states
from qbull.compat.celery.schedules import crontab
from qbull.compat.celery.utils import uuid
from qbull.compat.celery.utils.log import get_task_logger
from qbull.store.store import Store


@pytest.fixture
def app(server_url: str, store: Store, tmp_path: Path, closing: list[qbull.App]) -> Celery:
    closing.append(app := Celery("shop", broker=server_url, prefix="test"))
    return app


def run_all(app: qbull.App) -> None:
    async def drain() -> None:
        async with app.worker() as worker:
            await worker.drain()

    app.run_sync(drain())


def test_the_current_app_and_the_current_task_are_known(app: Celery) -> None:
    @app.task(name="who")
    def who() -> list[str]:
        return [current_task.name, current_task.request.id]

    result = current_app.send_task("who")
    run_all(app)

    assert result.get(timeout=10) == ["who", result.id]
    assert not current_task
    assert current_app.main == "shop"


def test_an_app_becomes_the_current_one_again(app: Celery, server_url: str, closing: list[qbull.App]) -> None:
    closing.append(Celery("other", broker=server_url, prefix="test"))
    app.set_default()

    assert current_app.main == "shop"


def test_control_revokes_one_job_or_several(app: Celery) -> None:
    @app.task
    def add(x: int) -> int:
        return x

    results = [add.delay(n) for n in range(3)]
    app.control.revoke(results[0].id)
    app.control.revoke([each.id for each in results[1:]], terminate=True)

    assert [each.state for each in results] == [states.REVOKED] * 3
    with pytest.raises(AttributeError, match=r"Control.inspect: use the command line"):
        app.control.inspect()


def test_a_handler_may_be_an_option_of_the_task(app: Celery) -> None:
    seen: list[str] = []

    def tell(self, exc, task_id, args, kwargs, einfo):  # type: ignore[no-untyped-def]
        seen.append(f"{self.name}: {exc}")

    @app.task(name="fail", on_failure=tell)
    def fail() -> None:
        raise ValueError("no")

    fail.delay()
    run_all(app)

    assert seen == ["fail: no"]


def test_routes_may_be_a_list_within_a_tuple(app: Celery) -> None:
    app.conf.task_routes = ([("shop.mail_*", {"queue": "mail"}), ("shop.*", {"queue": "rest"})],)

    assert app.conf.queue_of("shop.mail_out") == "mail"
    assert app.conf.queue_of("shop.add") == "rest"


def test_modules_have_the_paths_of_celery() -> None:
    assert crontab(minute=3).expression == "3 * * * *"
    assert get_task_logger("shop").name == "shop"
    assert uuid() != uuid()
    assert states.SUCCESS in states.READY_STATES


def test_a_task_may_wait_for_another_one(app: Celery) -> None:
    from qbull.compat.celery.result import allow_join_result

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    @app.task
    def total(ids: list[str]) -> int:
        with allow_join_result():
            return sum(add.AsyncResult(id).get(timeout=10) for id in ids)

    ids = [uuid(), uuid()]
    for n, id in enumerate(ids):
        add.apply_async((n, 10), task_id=id)
    result = total.delay(ids)
    run_all(app)

    assert result.get() == 21


def test_a_stamp_is_refused_with_its_replacement() -> None:
    with pytest.raises(
        ImportError, match=r"StampingVisitor: give the call headers=…, or set them in the signal"
    ):
        from qbull.compat.celery.canvas import StampingVisitor  # noqa: F401
