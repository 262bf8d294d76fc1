"""Flows and alerts through the API: which jobs wait for which, what is wrong, and whether people hear of it."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from inbox import Inbox
from web import ADMIN, VIEWER, Person, Web, make_admin, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.store.store import Store

ONCE = qbull.Retry(attempts=1)


class MediaApp:
    """Two queues of several partitions."""

    def __init__(self, app: qbull.App) -> None:
        self.media = app.queue("media", partitions=3, retry=ONCE)
        self.mail = app.queue("mail", partitions=2, retry=ONCE)
        self.go = asyncio.Event()

        @self.media.task
        async def download(url: str) -> str:
            if "broken" in url:
                raise ValueError(f"nothing is at {url}")
            return url

        @self.media.task
        async def resize(width: int) -> int:
            await self.go.wait()
            return width

        @self.mail.task
        async def tell(address: str) -> int:
            return len(qbull.current_job().results)

        self.download, self.resize, self.tell = download, resize, tell

    async def begin(self, url: str = "https://example.org/cat.jpg") -> Any:
        resized = qbull.group(*(self.resize.step(width) for width in (100, 200, 300)))
        return await qbull.chain(
            self.download.step(url), resized, self.tell.step("ann"), fallback=self.tell.step("bob")
        ).enqueue()


@pytest.fixture(name="media_app")
def make_media_app(app: qbull.App) -> MediaApp:
    return MediaApp(app)


def shape(told: Any) -> list[tuple[str, int, list[int]]]:
    return [(step["task"], step["level"], step["waitsFor"]) for step in told["steps"]]


async def test_a_flow_is_found_from_any_of_its_jobs(
    media_app: MediaApp, app: qbull.App, viewer: Person
) -> None:
    flow = await media_app.begin()

    async def over() -> Any:
        after = await viewer.get(f"/api/queues/mail/jobs/{flow.last.id}/flow")
        return after if len(after["steps"]) == 5 else None  # a fallback that is not needed is forgotten

    async with app.worker():
        await flow.jobs[0].result(timeout=10)
        told = [await viewer.get(f"/api/queues/{job.queue}/jobs/{job.id}/flow") for job in flow.jobs]
        media_app.go.set()
        assert await flow.result(timeout=10) == 3
        after = await eventually(over)

    expected = [("download", 0, []), *[("resize", 1, [0])] * 3, ("tell", 2, [1, 2, 3]), ("tell", 3, [4])]
    assert all(shape(one) == expected and one["flow"] == flow.id and not one["more"] for one in told)
    assert [step["fallback"] for step in told[0]["steps"]] == [False] * 5 + [True]
    assert told[0]["steps"][4]["blocked"] and told[0]["steps"][4]["state"] == "delayed"
    assert [step["state"] for step in after["steps"]] == ["completed"] * 5


async def test_what_failed_in_a_flow_is_seen(media_app: MediaApp, app: qbull.App, viewer: Person) -> None:
    flow = await media_app.begin("broken")
    async with app.worker():
        await flow.result(timeout=10)
    told = await viewer.get(f"/api/queues/media/jobs/{flow.jobs[0].id}/flow")

    states = [(step["task"], step["state"]) for step in told["steps"]]
    assert states[:4] == [("download", "failed"), *[("resize", "failed")] * 3]
    assert states[4:] == [("tell", "failed"), ("tell", "completed")]
    assert told["steps"][0]["error"] == "ValueError: nothing is at broken"


async def test_jobs_that_are_not_kept_are_known_by_those_that_waited(
    media_app: MediaApp, app: qbull.App, viewer: Person
) -> None:
    media_app.go.set()
    flow = await media_app.begin()
    async with app.worker():
        await flow.result(timeout=10)
    await media_app.media.clean("completed", task="resize")

    told = await viewer.get(f"/api/queues/mail/jobs/{flow.last.id}/flow")
    gone = [step for step in told["steps"] if step["task"] == "resize"]
    assert [(step["state"], step["kept"]) for step in gone] == [("completed", False)] * 3


async def test_a_job_without_a_flow_says_so(media_app: MediaApp, viewer: Person) -> None:
    job = await media_app.download.enqueue("x")

    told = await viewer.get(f"/api/queues/media/jobs/{job.id}/flow")

    assert (told["flow"], told["steps"]) == (None, [])
    await viewer.refused(404, "GET", f"/api/queues/media/jobs/{quote('not there')}/flow")


async def test_flows_are_listed_while_they_run_and_when_they_have_ended(
    media_app: MediaApp, app: qbull.App, viewer: Person
) -> None:
    await media_app.download.enqueue("alone")
    flows = [await media_app.begin(), await media_app.begin("broken")]
    async with app.worker():
        await flows[1].result(timeout=10)

        async def shown(n: int) -> Any:
            told = {one["flow"]: one for one in (await viewer.get("/api/flows"))["flows"]}
            return told if sum(one["state"] != "running" for one in told.values()) == n else None

        first = await eventually(lambda: shown(1))
        media_app.go.set()
        await flows[0].result(timeout=10)
        last = await eventually(lambda: shown(2))

    assert {flow: one["state"] for flow, one in first.items()} == {
        flows[0].id: "running",
        flows[1].id: "rescued",
    }
    assert last[flows[0].id]["state"] == "completed"
    assert (last[flows[0].id]["queue"], last[flows[0].id]["id"]) == ("mail", flows[0].last.id)


async def test_flows_are_searched_beyond_those_that_are_listed(
    media_app: MediaApp, app: qbull.App, viewer: Person
) -> None:
    media_app.go.set()
    async with app.worker():
        old = await media_app.begin("https://example.org/the-oldest.jpg")
        await old.result(timeout=10)
        for n in range(26):
            await (await media_app.begin(f"https://example.org/{n}.jpg")).result(timeout=10)

    listed = await viewer.get("/api/flows")
    assert len(listed["flows"]) == 25 and old.id not in [one["flow"] for one in listed["flows"]]

    async def found(**asked: str) -> set[str]:
        flows: set[str] = set()
        told = await viewer.get("/api/flows", **asked)
        while True:
            flows |= {one["flow"] for one in told["flows"]}
            assert told["scanned"] <= told["total"]
            if told["next"] is None:
                return flows
            told = await viewer.get("/api/flows", **{**asked, "cursor": told["next"]})

    assert await found(find="THE-OLDEST resize") == {old.id}
    assert await found(find="the-oldest", state="failed") == set()
    assert len(await found(cursor=listed["next"])) == len(await found(state="completed")) == 27
    await viewer.refused(400, "GET", "/api/flows", params={"cursor": "nonsense"})


async def test_alerts_say_what_is_wrong_and_whether_people_heard(server_url: str, store: Store) -> None:
    async with Inbox() as inbox:
        where = qbull.Alerts(slack=f"{inbox.url}/services/secret", allow=("127.0.0.1",))
        async with qbull.App(server_url, prefix="test", alerts=where) as app, opened(app) as web:
            email = app.queue("email", alert=True, retry=ONCE)

            @email.task
            async def send(to: str) -> None:
                raise ConnectionError(f"{to} does not answer")

            viewer, admin = await web.person(VIEWER), await web.person(ADMIN)
            async with app.worker():
                await send.enqueue("ann@example.org")

                async def heard() -> Any:
                    told = await viewer.get("/api/alerts")
                    return told if any(one["state"] == "completed" for one in told["messages"]) else None

                told = await eventually(heard)
                tried = await admin.post("/api/alerts/test")
                await admin.post("/api/queues/qbull.alerts/pause")
                silenced = (await viewer.get("/api/alerts"))["silenced"]
            await viewer.refused(403, "POST", "/api/alerts/test")

    [problem] = told["problems"]
    assert (problem["kind"], problem["queue"], problem["count"]) == ("failed", "email", 1)
    assert problem["text"] == 'queue "email": 1 job failed permanently'
    assert problem["reason"] == "ConnectionError: ann@example.org does not answer"
    assert (told["asking"], told["to"], told["silenced"]) == (
        ["email"],
        [{"kind": "slack", "host": "127.0.0.1"}],
        False,
    )
    assert tried["tried"] == [{"to": {"kind": "slack", "host": "127.0.0.1"}, "error": None}]
    assert silenced and len(inbox.posts) == 2
    assert "secret" not in str(told) + str(tried)


async def test_a_test_without_a_place_to_go_to_is_refused(app: qbull.App, admin: Person) -> None:
    assert "SLACK_WEBHOOK_URL" in await admin.refused(409, "POST", "/api/alerts/test")
    assert (await admin.get("/api/alerts"))["problems"] == []


async def test_a_flow_is_cancelled_and_retried_as_a_whole(
    media_app: MediaApp, app: qbull.App, admin: Person, viewer: Person
) -> None:
    flow = await media_app.begin("the-blue-cat.jpg")
    path = f"/api/queues/mail/jobs/{flow.last.id}/flow"
    await viewer.refused(403, "POST", f"{path}/cancel")
    async with app.worker():
        await flow.jobs[0].result(timeout=10)

        assert (await admin.post(f"{path}/cancel", {"reason": "wrong cat"}))["jobs"] == 5

        async def stopped() -> Any:
            told = (await viewer.get("/api/flows"))["flows"]
            return told if told[0]["state"] == "cancelled" else None

        [told] = await eventually(stopped)
        assert (told["first"], told["about"]) == ("download", "url=the-blue-cat.jpg")
        assert told["counts"]["completed"] == 1 and told["finishedAt"] is not None

        media_app.go.set()
        assert (await admin.post(f"{path}/retry"))["jobs"] >= 4
        assert await flow.result(timeout=10) == 3
        assert (await admin.post(f"{path}/retry"))["jobs"] == 0
    entries = (await admin.get("/api/audit"))["entries"]
    done = [entry["action"] for entry in entries if "flow" in entry["action"]]
    assert done[:2] == ["retry flow", "retry flow"] and "cancel flow" in done
    await admin.refused(404, "POST", f"/api/queues/mail/jobs/{quote('not there')}/flow/retry")


async def test_a_flow_that_failed_goes_on_after_a_retry(
    media_app: MediaApp, app: qbull.App, admin: Person
) -> None:
    media_app.go.set()
    flow = await media_app.begin("broken")
    async with app.worker():
        await flow.result(timeout=10)
        retried = await admin.post(f"/api/queues/mail/jobs/{flow.last.id}/flow/retry")

        # The first fails again, the others wait for it and end with it; the fallback is left alone.
        assert retried["jobs"] == 5
        states = await eventually(lambda: _ended(flow))
    assert states == {"failed": 5, "completed": 1}


async def _ended(flow: Any) -> Any:
    counts = await flow.counts()
    return counts if counts.keys() <= {"failed", "completed"} else None
