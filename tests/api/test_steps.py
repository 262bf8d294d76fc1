"""The steps of a durable job over HTTP: states, results and errors, hidden from those who may not see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from web import (  # noqa: F401 - some are fixtures
    ACCESS,
    ADMIN,
    VIEWER,
    Person,
    make_operator,
    make_viewer,
    open_web,
    opened,
)

import qbull
from conftest import eventually
from qbull.api import steps as endpoint
from qbull.store.store import Store

CARD = "4111-1111-1111-1111"


class Declined(Exception):
    pass


async def charge(card: str) -> dict[str, str]:
    return {"card": card, "payment": "p-1"}


async def ship(card: str) -> None:
    raise Declined(f"{card} was declined")


async def answer(person: Person, job: qbull.Job[Any]) -> list[dict[str, Any]]:
    shown = await person.get(f"/api/queues/{job.queue}/jobs/{job.id}/steps")
    assert shown["jobId"] == job.id
    steps: list[dict[str, Any]] = shown["steps"]
    return steps


@pytest.fixture(name="bought")
async def buy_with_a_card(app: qbull.App) -> qbull.Job[str]:
    @app.queue("orders").task(durable=True)
    async def buy(card: str) -> str:
        job = qbull.current_job()
        await job.step(charge, card)
        try:
            await job.step(ship, card)
        except Declined:
            return "declined"
        return "bought"

    job = await buy.enqueue(CARD)
    async with app.worker(["orders"]):
        await job.result(timeout=20)
    return job


async def test_viewers_see_states_times_results_and_errors(bought: qbull.Job[str], viewer: Person) -> None:
    charged, shipped = await answer(viewer, bought)

    assert (charged["name"], charged["state"], charged["attempts"]) == ("charge", "completed", 1)
    assert charged["result"] == {"card": CARD, "payment": "p-1"}
    assert charged["durationMs"] >= 0 and charged["startedAt"].endswith("Z")
    assert (shipped["state"], shipped["result"], shipped["error"]) == (
        "failed", None, f"Declined: {CARD} was declined",
    )  # fmt: skip


async def test_a_job_that_waits_shows_until_when_and_which_job_it_has_called(
    app: qbull.App, viewer: Person
) -> None:
    printing = app.queue("printing")

    @printing.task
    async def label() -> None: ...

    orders = app.queue("orders")

    @orders.task(durable=True)
    async def sleep() -> None:
        await qbull.current_job().sleep(hours=1)

    @orders.task(durable=True)
    async def call() -> None:
        await qbull.current_job().call(label.step())

    sleeping, calling = await sleep.enqueue(), await call.enqueue()
    async with app.worker(["orders"]):
        await eventually(lambda: suspended(sleeping))
        await eventually(lambda: suspended(calling))
    [slept], [called] = await answer(viewer, sleeping), await answer(viewer, calling)

    assert slept["state"] == "sleeping" and slept["until"] > slept["startedAt"]
    assert called["state"] == "calling" and called["called"]["queue"] == "printing"


async def test_hidden_fields_are_hidden_in_results_names_and_errors(
    app: qbull.App, bought: qbull.Job[str]
) -> None:
    async with opened(app, replace(ACCESS, redact=("card",))) as web:
        shown = await answer(await web.person(ADMIN), bought)

    assert CARD not in str(shown)
    assert shown[0]["result"]["card"] == "[redacted]"


async def test_only_admins_see_results_if_payloads_are_hidden(app: qbull.App, bought: qbull.Job[str]) -> None:
    async with opened(app, replace(ACCESS, hide_payloads=True)) as web:
        shown = await answer(await web.person(VIEWER), bought)
        whole = await answer(await web.person(ADMIN), bought)

    assert CARD not in str(shown) and [step["result"] for step in shown] == [None, None]
    assert whole[0]["result"]["card"] == CARD


async def test_results_beyond_the_bound_are_omitted(
    bought: qbull.Job[str], viewer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "STEPS_LIMIT_BYTES", 20)
    charged, shipped = await answer(viewer, bought)

    assert (charged["omitted"], shipped["omitted"]) == (False, True)
    assert shipped["name"] == "ship" and CARD not in str(shipped)


async def test_encrypted_steps_are_shown_only_by_a_server_that_has_the_key(
    server_url: str, store: Store
) -> None:
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    sealed = qbull.App(server_url, prefix="test", middleware=[encrypted])

    @sealed.queue("orders").task(durable=True)
    async def pay() -> None:
        await qbull.current_job().step(charge, CARD)
        await qbull.current_job().sleep(hours=1)

    async with sealed, qbull.App(server_url, prefix="test") as without:
        job = await pay.enqueue()
        async with sealed.worker(["orders"]):
            await eventually(lambda: suspended(job))
        async with opened(sealed) as web:
            opened_steps = await answer(await web.person(VIEWER), job)
        async with opened(without) as web:
            closed_steps = await answer(await web.person(VIEWER), job)

    assert opened_steps[0]["result"]["card"] == CARD and opened_steps[1]["until"] is not None
    assert [step["state"] for step in closed_steps] == ["completed", "sleeping"]
    assert list(closed_steps[0]["result"]) == ["encrypted"] and closed_steps[1]["until"] is None


async def test_an_operator_forks_a_job_from_a_step(
    app: qbull.App, bought: qbull.Job[str], operator: Person, viewer: Person
) -> None:
    path = f"/api/queues/orders/jobs/{bought.id}/fork"
    body = {"step": "ship", "results": {"1": {"card": "none", "payment": "cash"}}, "id": "cash"}

    answer = await operator.ask("POST", path, body)
    again = await operator.post(path, body)
    refused = await viewer.refused(403, "POST", path, body)

    assert answer.status_code == 202 and answer.headers["location"].endswith("/api/queues/orders/jobs/cash")
    assert (answer.json()["created"], again["created"], again["jobId"]) == (True, False, "cash")
    assert "operator" in refused
    shown = await viewer.get("/api/queues/orders/jobs/cash")
    assert (shown["forkedFrom"], shown["payload"]) == (bought.id, {"card": CARD})
    async with app.worker(["orders"]):
        assert await app.job("orders", "cash").result(timeout=20) == "declined"
    steps = (await viewer.get("/api/queues/orders/jobs/cash/steps"))["steps"]
    assert steps[0]["result"]["payment"] == "cash" and steps[1]["state"] == "failed"


async def test_a_fork_that_makes_no_sense_is_refused(bought: qbull.Job[str], operator: Person) -> None:
    path = f"/api/queues/orders/jobs/{bought.id}/fork"

    assert "steps 1 to 2" in await operator.refused(400, "POST", path, {"step": 9})
    assert "is not copied" in await operator.refused(400, "POST", path, {"step": 1, "results": {"2": 1}})
    await operator.refused(404, "POST", "/api/queues/orders/jobs/nothing/fork", {})


async def test_an_unknown_job_is_not_found(app: qbull.App, bought: qbull.Job[str], viewer: Person) -> None:
    await viewer.refused(404, "GET", "/api/queues/orders/jobs/nothing/steps")


async def suspended(job: qbull.Job[Any]) -> bool:
    info = await job.info()
    return info is not None and info.suspended is not None
