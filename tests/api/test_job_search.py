"""One query over all queues: what it finds, how far it has read, and what it must not reveal."""

from __future__ import annotations

import asyncio
import string
from typing import Any

import pytest
from web import ADMIN, VIEWER, Person, make_admin, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from qbull.core.job_query import JobQuery
from qbull.manage import job_search
from qbull.manage.job_search import SearchRequest, find_jobs


class Company:
    """Two queues with jobs in all states."""

    def __init__(self, app: qbull.App) -> None:
        self.app = app
        retry = qbull.Retry(attempts=1)
        self.email = app.queue("email", retry=retry, partitions=2)
        self.orders = app.queue("orders", retry=retry, partitions=3, order="key")
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

        @self.email.task
        async def verify(customer: str, code: int = 0) -> None:
            if code:
                raise ConnectionError(f"{code} try again")

        @self.orders.task(key="{customer}")
        async def ship(customer: str, items: list[dict[str, str]] | None = None) -> str:
            return f"shipped to {customer}"

        @self.orders.task
        async def wait() -> None:
            self.begun.set()
            await self.let_go.wait()

        self.verify, self.ship, self.wait = verify, ship, wait

    async def fill(self) -> None:
        for n in range(12):
            await self.verify.enqueue(customer=f"c-{n}", code=421 if n % 3 == 0 else 0)
            await self.ship.enqueue(customer=f"c-{n}", items=[{"sku": f"sku-{n}"}])
        async with self.app.worker() as worker:
            await worker.drain()
        for n in range(12):
            await self.verify.enqueue(customer=f"w-{n}")
            await self.ship.options(delay=600).enqueue(customer=f"d-{n}")


@pytest.fixture(name="company")
async def make_company(app: qbull.App) -> Company:
    company = Company(app)
    await company.fill()
    return company


MAX_ANSWERS = 100


async def found(person: Person, q: str, **more: Any) -> list[str]:
    """The customers whose jobs are found, over all answers."""
    jobs, cursor = [], None
    for _ in range(MAX_ANSWERS):
        answer = await person.get("/api/jobs", q=q, **more, **({"cursor": cursor} if cursor else {}))
        jobs += answer["jobs"]
        cursor = answer["next"]
        assert answer["scanned"] <= answer["total"]
        assert len(jobs) <= 48, "jobs come again"
        if cursor is None:
            assert answer["scanned"] == answer["total"] or q.startswith("id:")
            return sorted(str(job["payload"]["customer"]) for job in jobs)
    raise AssertionError(f"the search for {q} does not end")


async def test_one_query_finds_jobs_of_all_queues_and_states(company: Company, viewer: Person) -> None:
    assert await found(viewer, "c-3") == ["c-3", "c-3"]
    assert await found(viewer, "args.customer:c-3 queue:orders") == ["c-3"]
    assert await found(viewer, "state:failed error:421") == ["c-0", "c-3", "c-6", "c-9"]
    assert await found(viewer, "args.items.0.sku:sku-5") == ["c-5"]
    assert await found(viewer, "state:waiting,delayed -queue:email args.customer:d-1*") == [
        "d-1",
        "d-10",
        "d-11",
    ]
    assert await found(viewer, "since:1h until:now state:completed queue:email") == [
        f"c-{n}" for n in (1, 10, 11, 2, 4, 5, 7, 8)
    ]
    assert await found(viewer, "since:2030-01-31 until:2030-02-01") == []


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
async def test_pages_of_any_size_have_each_job_once(company: Company, viewer: Person, limit: int) -> None:
    jobs, cursor, scanned = [], None, -1
    while True:
        answer = await viewer.get("/api/jobs", limit=limit, **({"cursor": cursor} if cursor else {}))
        assert len(answer["jobs"]) <= limit
        assert answer["scanned"] >= scanned
        assert len(jobs) <= 48, "jobs come again"
        scanned, cursor = answer["scanned"], answer["next"]
        jobs += [(job["queue"], job["id"]) for job in answer["jobs"]]
        if cursor is None:
            break

    assert len(jobs) == len(set(jobs)) == 48


async def test_the_newest_come_first_over_all_queues(company: Company, viewer: Person) -> None:
    answer = await viewer.get("/api/jobs", q="state:completed,failed", limit=1000)

    ends = [job["finishedAt"] for job in answer["jobs"]]
    assert len(ends) == 24
    assert ends == sorted(ends, reverse=True)
    first = await viewer.get("/api/jobs", q="state:completed,failed", limit=5)
    assert [job["finishedAt"] for job in first["jobs"]] == ends[:5]


async def test_a_running_job_is_found_at_once(company: Company, app: qbull.App, viewer: Person) -> None:
    job = await company.wait.enqueue()
    async with app.worker(["orders"]):
        await company.begun.wait()
        answer = await viewer.get("/api/jobs", q="state:active task:wait")
        company.let_go.set()

    assert [(one["id"], one["state"]) for one in answer["jobs"]] == [(job.id, "active")]


async def test_a_whole_id_is_found_without_reading_other_jobs(company: Company, viewer: Person) -> None:
    job = await company.verify.options(id="order 7").enqueue(customer="ada")

    by_field = await viewer.get("/api/jobs", q='id:"order 7"')
    by_word = await viewer.get("/api/jobs", q='"order 7"')

    assert [one["id"] for one in by_field["jobs"]] == [one["id"] for one in by_word["jobs"]] == [job.id]
    assert (by_field["next"], by_field["total"]) == (None, 1)


async def test_a_search_stops_when_its_time_is_over_and_goes_on(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer has read more than the one before, even if it has no time at all."""
    monkeypatch.setattr(job_search, "FINISHED_STEP_JOBS", 5)
    queues = [company.email, company.orders]
    cursor, answers, ids = None, 0, []
    while True:
        answer = await find_jobs(SearchRequest(queues, JobQuery(), cursor=cursor, seconds=0.0, limit=1000))
        ids += [job.id for job in answer.jobs]
        answers, cursor = answers + 1, answer.next
        if cursor is None:
            break
        assert answers < 200

    assert answers > 3
    assert len(ids) == len(set(ids)) == 48


async def test_facets_say_whether_they_are_exact(
    company: Company, viewer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.manage.job_facets.MAX_FACET_JOBS", 10)

    def counts(answer: Any) -> dict[str, tuple[bool, dict[str, int]]]:
        return {
            one["field"]: (one["exact"], {value["value"]: value["count"] for value in one["values"]})
            for one in answer["facets"]
        }

    every = counts(await viewer.get("/api/jobs/facets"))
    failed = counts(await viewer.get("/api/jobs/facets", q="state:failed error:421"))

    assert every["state"] == (True, {"waiting": 12, "delayed": 12, "completed": 20, "failed": 4})
    assert every["queue"] == (True, {"email": 24, "orders": 24})
    assert every["task"][0] is False
    assert failed["task"] == (True, {"verify": 4})
    assert failed["args.customer"] == (True, {"c-0": 1, "c-3": 1, "c-6": 1, "c-9": 1})


@pytest.mark.parametrize("q", ["colour:red", 'error:"4', "state:dead", "args.items.².sku:x", "since:²h"])
async def test_a_wrong_query_is_refused_with_the_remedy(company: Company, viewer: Person, q: str) -> None:
    assert "query" in await viewer.refused(400, "GET", "/api/jobs", params={"q": q})


@pytest.mark.parametrize("cursor", ["1", "1~x~0:0:0", "1~-~0:99999999999999999999:0", "1~-~0:0", "~~::"])
async def test_a_wrong_cursor_is_refused(company: Company, viewer: Person, cursor: str) -> None:
    assert "cursor" in await viewer.refused(400, "GET", "/api/jobs", params={"cursor": cursor})


async def test_a_token_for_some_queues_finds_only_their_jobs(
    company: Company, admin: Person, web: Any
) -> None:
    made = await admin.post("/api/tokens", {"name": "mail", "role": "viewer", "queues": ["email"]})
    somebody = await web.person(made["token"])

    answer = await somebody.get("/api/jobs", q="c-3")
    facets = await somebody.get("/api/jobs/facets")

    assert {job["queue"] for job in answer["jobs"]} == {"email"}
    assert [
        value["value"] for one in facets["facets"] if one["field"] == "queue" for value in one["values"]
    ] == ["email"]
    assert (await somebody.get("/api/jobs", q="queue:orders"))["jobs"] == []


REDACTING = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, redact=("password",))
HIDING = qbull.Access(admin_token=ADMIN, viewer_token=VIEWER, hide_payloads=True)
SECRET = "s3cret-pass"


@pytest.fixture(name="vault")
async def fill_vault(app: qbull.App) -> qbull.Queue:
    vault = app.queue("vault", retry=qbull.Retry(attempts=1))

    @vault.task
    async def store(customer: str, password: str) -> None:
        raise ValueError(f"{password} is refused")

    await store.options(key=SECRET).enqueue(customer="ada", password=SECRET)
    async with app.worker() as worker:
        await worker.drain()
    await store.enqueue(customer="bob", password=SECRET)
    return vault


async def test_a_hidden_value_cannot_be_spelled_with_a_query(app: qbull.App, vault: qbull.Queue) -> None:
    async with opened(app, REDACTING) as web:
        admin = await web.person(ADMIN)
        for letter in string.ascii_lowercase + string.digits:
            for q in (f'error:"ValueError: {letter}"', f"error:{letter}{letter}pa", f"key:{letter}*"):
                assert (await admin.get("/api/jobs", q=q))["jobs"] == [], q
        for q in (SECRET, SECRET[:5], f"error:{SECRET}", f"key:{SECRET}"):
            assert (await admin.get("/api/jobs", q=q))["jobs"] == [], q
        assert "hidden" in await admin.refused(403, "GET", "/api/jobs", params={"q": "args.password:s*"})
        assert "hidden" in await admin.refused(
            403, "GET", "/api/jobs/facets", params={"q": "args.password:*"}
        )
        told = await admin.ask("GET", "/api/jobs/facets")
        assert SECRET not in told.text
        assert len((await admin.get("/api/jobs", q="ada"))["jobs"]) == 1


async def test_viewers_who_see_no_arguments_cannot_search_them(app: qbull.App, vault: qbull.Queue) -> None:
    async with opened(app, HIDING) as web:
        viewer, admin = await web.person(VIEWER), await web.person(ADMIN)
        for q in ("args.customer:ada", "error:refused", "fingerprint:6f1c0a2b9d3e", "-error:refused"):
            for path in ("/api/jobs", "/api/jobs/facets"):
                assert "only admins" in await viewer.refused(403, "GET", path, params={"q": q})
        assert (await viewer.get("/api/jobs", q="ada"))["jobs"] == []
        assert len((await admin.get("/api/jobs", q="ada"))["jobs"]) == 1
        facets = (await viewer.get("/api/jobs/facets"))["facets"]
        assert not [
            one for one in facets if one["field"].startswith("args.") or one["field"] == "fingerprint"
        ]


async def test_an_operation_takes_a_query_as_its_filter(company: Company, admin: Person) -> None:
    body = {"action": "remove", "state": "failed", "q": "args.customer:c-3,c-6 -queue:orders"}
    started = await admin.ask("POST", "/api/queues/email/operations", body)
    path = started.headers["location"]
    while (told := await admin.get(path))["operation"]["state"] == "running":
        await asyncio.sleep(0)

    assert told["operation"]["done"] == 2
    assert await found(admin, "state:failed") == ["c-0", "c-9"]
