"""Flask: tasks run in the context of an application."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import flask
import pytest

import qbull
from qbull import testing
from qbull.contrib.flask import FlaskContext, init_app, qbull_app
from qbull.store.store import Store

torn_down: list[str] = []


def create_app() -> flask.Flask:
    application = flask.Flask("shop")
    application.config["SHOP"] = "The Shop"

    @application.teardown_appcontext
    def tear_down(error: BaseException | None) -> None:
        torn_down.append(threading.current_thread().name)

    return application


def tasks_of(app: qbull.App) -> tuple[qbull.Task[..., Any], qbull.Task[..., Any]]:
    mail = app.queue("mail")

    @mail.task
    def plain(job: str) -> list[str]:
        return [flask.current_app.config["SHOP"], job, threading.current_thread().name]

    @mail.task
    async def asynchronous(function: str) -> list[str]:
        return [flask.current_app.config["SHOP"], function]

    return plain, asynchronous


@pytest.mark.parametrize(
    "given", [create_app, create_app(), f"{__name__}:create_app"], ids=["factory", "application", "name"]
)
async def test_a_task_has_a_context_of_its_own_in_its_thread(
    server_url: str, store: Store, given: Any
) -> None:
    torn_down.clear()
    if isinstance(given, str):
        given = f"{create_app.__module__}:create_app"
    async with qbull.App(server_url, prefix="test", middleware=[FlaskContext(given)]) as app:
        plain, asynchronous = tasks_of(app)
        jobs = await plain.enqueue(job="a"), await asynchronous.enqueue(function="b")
        async with app.worker():
            first, second = [await job.result(timeout=10) for job in jobs]

    assert first[:2] == ["The Shop", "a"]
    assert second == ["The Shop", "b"]
    assert sorted(torn_down) == sorted([first[2], threading.current_thread().name])


def test_a_view_enqueues_and_a_test_runs_it_inline() -> None:
    application = create_app()
    app = qbull.App("redis://127.0.0.1:1/0", middleware=[FlaskContext(application)])
    plain, _ = tasks_of(app)
    init_app(application, app)

    @application.post("/orders")
    def order() -> list[str]:
        assert qbull_app() is app
        return app.run_sync(plain.enqueue_sync(job=flask.request.form["job"]).result())

    with testing.inline(app) as jobs:
        answer = application.test_client().post("/orders", data={"job": "c"})

    assert answer.json == ["The Shop", "c", threading.current_thread().name]
    jobs.assert_enqueued(plain, job="c")


async def test_what_is_no_application_is_said(server_url: str, store: Store) -> None:
    with (
        create_app().app_context(),
        pytest.raises(qbull.ConfigError, match=r"call init_app\(application, app\)"),
    ):
        qbull_app()
    for wrong, line in (
        ("nowhere", 'give "module:application"'),
        (lambda: "no application", "no Flask application"),
    ):
        context = FlaskContext(wrong)  # type: ignore[arg-type]
        async with qbull.App(server_url, prefix="test", middleware=[context]) as app:
            plain, _ = tasks_of(app)
            job = await plain.options(timeout=5).enqueue(job="a")
            async with app.worker():
                while not (info := await job.info()) or not info.error:
                    pass
            assert line in info.error
            await job.cancel()


async def test_threads_that_begin_together_make_one_application(server_url: str, store: Store) -> None:
    made, both = list[flask.Flask](), threading.Barrier(2)

    def make() -> flask.Flask:
        made.append(create_app())
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=1)  # for another thread that makes one, which there must not be
        return made[-1]

    async with qbull.App(server_url, prefix="test", middleware=[FlaskContext(make)]) as app:
        plain, _ = tasks_of(app)
        jobs = await plain.enqueue_many([{"job": "a"}, {"job": "b"}])
        async with app.worker():
            for job in jobs:
                await job.result(timeout=20)

    assert len(made) == 1
