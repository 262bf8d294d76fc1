"""Testing: jobs in users' own tests, without a server or with a real one, and a clock that can be moved."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import pytest_qbull
import qbull
from qbull import testing

pytestmark = pytest.mark.timeout(60)


class MailApp:
    """A program with tasks, as its code would have it: on a server that no test can reach."""

    def __init__(self, *middleware: qbull.Middleware) -> None:
        self.app = app = qbull.App("redis://127.0.0.1:1/0", middleware=middleware)
        mail = app.queue("mail", retry=qbull.Retry(delays=(60,)))
        self.mail = mail
        self.sent: list[str] = []

        @mail.task(id="welcome:{email}")
        async def welcome(email: str) -> str:
            self.sent.append(email)
            await remind.options(delay=86_400, priority=9).enqueue(email=email)
            return f"welcome, {email}"

        @mail.task(key="{email}")
        def remind(email: str) -> str:
            self.sent.append(f"again {email}")
            return threading.current_thread().name

        @mail.task
        async def flaky(fails: int) -> int:
            attempt = qbull.current_job().attempt
            if attempt <= fails:
                raise OSError(f"attempt {attempt}")
            return attempt

        @mail.cron("0 9 * * *", name="morning")
        async def morning() -> None:
            self.sent.append("good morning")

        self.welcome, self.remind, self.flaky, self.morning = welcome, remind, flaky, morning


@pytest.fixture
def mail_app() -> MailApp:
    return MailApp()


async def test_inline_runs_a_task_where_it_is_enqueued(mail_app: MailApp) -> None:
    with testing.inline(mail_app.app) as jobs:
        job = await mail_app.welcome.enqueue(email="ada")
        again = await mail_app.welcome.enqueue(email="ada")

        assert mail_app.sent == ["ada"]
        assert await job.result() == "welcome, ada"
        assert (job.created, again.created) == (True, False)
        call = jobs.assert_enqueued(mail_app.remind, email="ada")
        assert (call.delay, call.priority, call.key) == (86_400, 9, "ada")
        assert [call.task for call in jobs.enqueued()] == ["welcome", "remind", "welcome"]
        info = await job.info()
        assert info is not None
        assert (info.state, info.result, info.payload) == ("completed", "welcome, ada", {"email": "ada"})


async def test_what_was_not_enqueued_is_said_with_what_was(mail_app: MailApp) -> None:
    with testing.inline(mail_app.app, run=False) as jobs:
        jobs.assert_not_enqueued()
        with pytest.raises(AssertionError, match=r"not enqueued: mail: remind\(\); nothing was"):
            jobs.assert_enqueued(mail_app.remind)

        await mail_app.welcome.enqueue(email="ada")

        with pytest.raises(
            AssertionError,
            match=r"not enqueued: welcome\(email='bob'\); what was: mail: welcome\(email='ada'\)",
        ):
            jobs.assert_enqueued("welcome", email="bob")
        with pytest.raises(AssertionError, match=r"enqueued: mail: welcome\(email='ada'\)"):
            jobs.assert_not_enqueued("mail/welcome")
        jobs.assert_not_enqueued(mail_app.welcome, email="bob")
        assert mail_app.sent == []

        await jobs.run_due()

        assert mail_app.sent == ["ada"]


async def test_an_error_is_raised_where_the_task_was_enqueued_or_retried_as_by_a_worker(
    mail_app: MailApp,
) -> None:
    with testing.inline(mail_app.app), pytest.raises(OSError, match="attempt 1"):
        await mail_app.flaky.enqueue(fails=1)

    with testing.inline(mail_app.app, propagate=False) as jobs:
        job, dead = await mail_app.flaky.enqueue(fails=1), await mail_app.flaky.enqueue(fails=5)
        assert await job.state() == "delayed"
        with pytest.raises(qbull.ResultTimeout, match=r"is delayed .* advance\(\) first"):
            await job.result(timeout=10)

        await jobs.advance(60)

        assert await job.result() == 2
        with pytest.raises(qbull.JobFailed, match="attempt 2"):
            await dead.result()
        await dead.retry({"fails": 0})
        assert await dead.result() == 1


def test_synchronous_code_stays_in_its_thread(mail_app: MailApp) -> None:
    where = contextvars.ContextVar("where", default="nowhere")

    @mail_app.mail.task
    def look() -> list[str]:
        inner = mail_app.remind.enqueue_sync(email="bob")
        return [where.get(), threading.current_thread().name, mail_app.app.run_sync(inner.result())]

    where.set("in the transaction of the test")
    with testing.inline(mail_app.app) as jobs:
        job = look.enqueue_sync()
        mail_app.welcome.enqueue_sync(email="ada")
        jobs.advance_sync(2 * 86_400)
        answer = mail_app.app.run_sync(job.result())

    name = threading.current_thread().name
    assert answer == ["in the transaction of the test", name, name]
    assert mail_app.sent.count("again ada") == 1
    assert mail_app.sent.count("good morning") == 2


class Tenant(qbull.Middleware):
    def __init__(self) -> None:
        self.states: list[str] = []

    @contextmanager
    def around_enqueue(self, call: qbull.Enqueueing) -> Iterator[None]:
        call.headers["tenant"] = "t1"
        yield

    @contextmanager
    def around_run(self, job: qbull.CurrentJob) -> Iterator[None]:
        self.states.append(job.headers.get("tenant", "nobody"))
        yield

    def settled(self, run: qbull.Settled) -> None:
        self.states.append(run.state)


async def test_middleware_and_seals_are_real_inline() -> None:
    tenant = Tenant()
    mail_app = MailApp(tenant, qbull.Encrypted([qbull.Encrypted.new_key()], require=True))

    with testing.inline(mail_app.app) as jobs:
        job = await mail_app.welcome.enqueue(email="ada")
        thread = await mail_app.remind.enqueue(email="bob")

        assert jobs.assert_enqueued(mail_app.welcome, email="ada").headers == {"tenant": "t1"}
        assert await job.result() == "welcome, ada"
        assert await thread.result() != threading.current_thread().name
    assert tenant.states == ["t1", "completed", "t1", "completed"]


async def test_windows_promoting_cancelling_logs_and_progress_inline(mail_app: MailApp) -> None:
    runs: list[int] = []

    @mail_app.mail.task(unique=qbull.Unique(window=10, mode="debounce", by=()))
    async def index(n: int) -> None:
        runs.append(n)
        await qbull.current_job().progress(50)
        await qbull.current_job().log(f"n is {n}")

    with testing.inline(mail_app.app) as jobs:
        first, second = await index.enqueue(1), await index.enqueue(2)
        await jobs.advance(9)
        third = await index.enqueue(3)
        await jobs.advance(9)
        assert runs == []
        await jobs.advance(1)
        assert runs == [3]
        assert (first.created, second.created, third.created) == (True, False, False)
        info = await first.info()
        assert info is not None
        assert info.progress == 50
        assert [line.text for line in await first.logs()] == ["n is 3"]

        late = await mail_app.remind.options(delay=10).enqueue(email="late")
        never = await mail_app.remind.options(delay=10).enqueue(email="never")
        gone = await mail_app.remind.options(delay=10).enqueue(email="gone")
        await late.promote()
        await never.cancel()
        await gone.remove()
        await jobs.advance(20)
        assert mail_app.sent == ["again late"]
        assert (await never.state(), await gone.state()) == ("cancelled", None)


async def test_a_chunk_has_one_job_inline_and_as_many_as_there_are_on_a_server(mail_app: MailApp) -> None:
    sizes: list[int] = []

    @mail_app.app.queue("clicks", concurrency=10).task(chunk=10, wait=30)
    def store(rows: list[int]) -> list[int]:
        sizes.append(len(rows))
        return [row * 2 for row in rows]

    with testing.inline(mail_app.app):
        jobs = await store.enqueue_many([{"item": 1}, {"item": 2}])
        assert [await job.result() for job in jobs] == [2, 4]
    async with testing.embedded(mail_app.app) as server:
        await store.enqueue_many([{"item": n} for n in range(10)])
        await server.run_due()

    assert sizes == [1, 1, 10]


async def test_what_needs_a_server_says_so_inline(mail_app: MailApp) -> None:
    with testing.inline(mail_app.app):
        events = anext(aiter(mail_app.mail.events()))
        for call in (
            mail_app.mail.stats(),
            mail_app.mail.search("failed"),
            mail_app.app.schedules.list(),
            events,
        ):
            with pytest.raises(qbull.QbullError, match=r"needs a server.*; use qbull\.testing\.embedded"):
                await call
        async with mail_app.app.worker() as worker:
            await worker.drain()
        with pytest.raises(qbull.QbullError, match="used by another test already"):
            testing.inline(mail_app.app).__enter__()


async def test_embedded_is_a_real_server(mail_app: MailApp) -> None:
    async with testing.embedded(mail_app.app) as server:
        job = await mail_app.welcome.enqueue(email="ada")
        await server.run_due()

        assert await job.result(timeout=10) == "welcome, ada"
        assert (await mail_app.mail.stats()).delayed == 1
        assert server.assert_enqueued(mail_app.remind, email="ada").delay == 86_400
        assert server.enqueued(mail_app.welcome)[0].id == job.id
    async with testing.embedded(mail_app.app) as server:
        server.assert_not_enqueued()
        assert (await mail_app.mail.stats()).total == 0
    assert mail_app.app.url == "redis://127.0.0.1:1/0"


async def test_a_flow_is_run_to_its_end_and_needs_a_server(mail_app: MailApp) -> None:
    @mail_app.mail.task
    def add(n: int) -> int:
        return n + sum(qbull.current_job().results)

    flow = qbull.chain(add.step(1), qbull.group(add.step(2), add.step(3)), add.step(4))
    async with testing.embedded(mail_app.app) as server:
        begun = await flow.enqueue()
        await server.run_due()

        assert await begun.result(timeout=1) == (1 + 2) + (1 + 3) + 4
        assert sorted(call.arguments["n"] for call in server.enqueued(add)) == [1, 2, 3, 4]
    with testing.inline(mail_app.app), pytest.raises(qbull.QbullError, match="a flow needs a server"):
        await flow.enqueue()


async def test_time_passes_on_the_server_and_everything_runs_at_its_time(mail_app: MailApp) -> None:
    @mail_app.mail.task(unique=qbull.Unique(window=3600, by=()))
    async def digest() -> str:
        return "digest"

    async with testing.embedded(mail_app.app) as server:
        began = await server.now()
        job, flaky = await mail_app.welcome.enqueue(email="ada"), await mail_app.flaky.enqueue(fails=1)
        hourly = [await digest.enqueue(), await digest.enqueue()]
        at = await mail_app.remind.options(at=datetime.now(UTC) + timedelta(days=2)).enqueue(email="at")

        await server.advance(3600)
        hourly.append(await digest.enqueue())
        assert await flaky.result(timeout=10) == 2
        assert mail_app.sent == ["ada"] + ["good morning"] * mail_app.sent.count("good morning")
        await server.advance(2 * 86_400)

        assert [job.created for job in hourly] == [True, False, True]
        assert mail_app.sent.count("again ada") == mail_app.sent.count("again at") == 1
        # Two days and an hour have two or three times nine o'clock in them.
        nine, now = began.replace(hour=9, minute=0, second=0, microsecond=0), await server.now()
        mornings = sum(began < nine + timedelta(days=day) <= now for day in range(5))
        assert mail_app.sent.count("good morning") == mornings
        assert (await server.now()) - began >= timedelta(seconds=3600 + 2 * 86_400)
        info = await at.info()
        assert info is not None
        assert info.finished_at is not None
        assert info.finished_at - began >= timedelta(days=2)
        assert await job.state() is None  # completed two days ago, and kept for one


def test_embedded_in_synchronous_code(mail_app: MailApp) -> None:
    with testing.embedded(mail_app.app) as server:
        mail_app.welcome.enqueue_sync(email="ada")
        server.run_due_sync()
        server.advance_sync(86_400)

        assert mail_app.sent.count("again ada") == 1
        assert server.now_sync() > datetime.now(UTC) + timedelta(seconds=86_000)


async def test_an_app_is_given_back_though_it_could_not_be_closed(
    mail_app: MailApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OSError("cannot be closed")

    with pytest.raises(OSError, match="cannot be closed"):
        async with testing.embedded(mail_app.app):
            monkeypatch.setattr(mail_app.app, "close", fail)
    monkeypatch.undo()

    async with testing.embedded(mail_app.app) as server:
        await mail_app.welcome.enqueue(email="ada")
        await server.run_due()
    assert mail_app.sent == ["ada"]


def test_synchronous_code_gives_it_back_too(mail_app: MailApp, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("cannot be closed")

    with pytest.raises(OSError, match="cannot be closed"), testing.embedded(mail_app.app):
        monkeypatch.setattr(mail_app.app, "close_sync", fail)
    monkeypatch.undo()

    with testing.embedded(mail_app.app):
        pass


async def test_a_worker_of_ones_own_sees_the_moved_clock(mail_app: MailApp) -> None:
    async with testing.embedded(mail_app.app) as server:
        job = await mail_app.flaky.options(delay=7200).enqueue(fails=0)
        async with mail_app.app.worker():
            await asyncio.sleep(0)
            await server.advance(7200)
            assert await job.result(timeout=10) == 1


PROJECT = {
    "shop.py": """
        import qbull

        app = qbull.App("redis://127.0.0.1:1/0")
        mail = app.queue("mail")

        @mail.task
        def welcome(name: str) -> str:
            return f"welcome, {name}"
    """,
    "test_shop.py": """
        import pytest
        from shop import app, welcome

        def test_inline(qbull_inline):
            welcome.enqueue_sync(name="ada")
            qbull_inline.assert_enqueued("welcome", name="ada")

        def test_server(qbull_server):
            job = welcome.enqueue_sync(name="ada")
            qbull_server.run_due_sync()
            assert app.run_sync(job.result(timeout=10)) == "welcome, ada"

        async def test_server_async(qbull_server):
            job = await welcome.enqueue(name="bob")
            await qbull_server.run_due()
            assert await job.result(timeout=10) == "welcome, bob"
            qbull_server.assert_enqueued(welcome, name="bob")

        @pytest.fixture
        def two(qbull_app):
            return qbull_app

        def test_the_app(two):
            assert two is app
    """,
    "pytest.ini": """
        [pytest]
        qbull_app = shop:app
        asyncio_mode = auto
        filterwarnings = error
    """,
}


LEAN = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:xdist")


def run_pytest(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *LEAN],
        cwd=directory, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


def test_the_plugin_has_fixtures_for_an_app_that_is_named_once(project: Path) -> None:
    assert "4 passed" in run_pytest(project)


def test_the_plugin_imports_nothing_for_those_who_do_not_ask() -> None:
    look = "import sys, pytest_qbull; print([name for name in sys.modules if name.startswith(('qbull', 'redis'))])"

    said = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60
    )

    assert said.stdout == "[]\n"


@pytest.mark.parametrize(
    ("named", "line"), [("", 'give "module:app"'), ("json:loads", "loads is no qbull.App of json")]
)
def test_the_plugin_says_what_is_wrong_with_its_setting(named: str, line: str) -> None:
    with pytest.raises(pytest.UsageError, match=line):
        pytest_qbull.app_named(named, sys.path[0])
