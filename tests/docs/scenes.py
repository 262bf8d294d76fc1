"""What the pages take for granted: for each, the names that its blocks use and do not make themselves.

A scene is real: queues on a real server, a real database, jobs that ran. Where a page speaks of a program of its reader's own
(`current_tenant()`, `provider.send_all(…)`), the scene has a small one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from given import Given, Names, Service

import qbull
from qbull.store.verbs.shared_limits import declare as declare_limit
from qbull.testing import embedded, inline
from topology import raised_pair

Scene = Callable[[Given], Awaitable[Names]]


SCENES: dict[str, Scene] = {}
"""Pages that make all they need, or declare only, have none."""
ELSEWHERE = {
    "docs/guides/django.md",
    "docs/guides/from_celery.md",
    "docs/guides/from_rq.md",
    "docs/guides/from_streams.md",
    "docs/howto/ordinary_day.md",
    "docs/tutorial/1_first_job.md",
    "docs/tutorial/2_web.md",
    "docs/tutorial/3_order.md",
    "docs/tutorial/4_failures.md",
    "docs/tutorial/5_cron_and_tests.md",
}
"""Run by test_django_page.py, because Django's settings are there once in a process; by tests/guide/test_from_….py, as programs
that workers import; by test_ordinary_day.py and by test_tutorial.py, as the files that the tutorial saves."""


def scene(page: str) -> Callable[[Scene], Scene]:
    def put(made: Scene) -> Scene:
        SCENES[page] = made
        return made

    return put


def sending(queue: qbull.Queue) -> qbull.Task[..., Any]:
    @queue.task
    async def send(to: str) -> str:
        return to

    return send


@scene("README.md")
@scene("README.es.md")
async def readme(given: Given) -> Names:
    """A worker runs while the page waits for a result; a database has the reader's orders."""
    from psycopg_pool import AsyncConnectionPool

    pool = await given.stack.enter_async_context(AsyncConnectionPool(given.fixture("database"), min_size=1))
    async with pool.connection() as made:
        await made.execute("CREATE TABLE orders (id serial PRIMARY KEY, customer text)")
    media = given.app.queue("media")

    @media.task
    async def download(url: str) -> str:
        return url

    @media.task
    async def resize(width: int) -> int:
        return width

    @media.task
    async def publish() -> None: ...

    async def work(statement: str) -> Names:
        if "job.result" in statement:
            await given.stack.enter_async_context(given.names["app"].worker())
        return {}

    given.each = work
    return {"pool": pool, "download": download, "resize": resize, "publish": publish}


@scene("docs/guides/alerts.md")
async def alerts(given: Given) -> Names:
    """One queue declared in two ways."""

    async def another_app(statement: str) -> Names:
        return {"app": qbull.App()}

    given.each = another_app
    return {}


@scene("docs/guides/arguments_and_results.md")
async def arguments_and_results(given: Given) -> Names:
    return {"orders": given.app.queue("orders")}


@scene("docs/guides/cancelling.md")
async def cancelling(given: Given) -> Names:
    send = sending(given.app.queue("email"))

    async def another_job(statement: str) -> Names:
        return {"job": await send.options(delay=60).enqueue("a@b.c")}

    given.each = another_job
    return {"reports": given.app.queue("reports")}


@scene("docs/guides/chunks.md")
async def chunks(given: Given) -> Names:
    @dataclass
    class Click:
        user: int
        page: str

    @dataclass
    class Message:
        text: str

    return {"Click": Click, "Message": Message, "database": Service(), "provider": Service()}


def billing(given: Given) -> Names:
    """Before each line there are dead letters, one of them with the id of the pages."""
    queue = given.app.queue("billing", retry=qbull.Retry(attempts=1, backoff="fixed", delay=1))

    @queue.task
    async def charge(customer: str, amount: int) -> None:
        if amount < 6:
            raise ValueError("the card was refused")

    async def fail(statement: str) -> Names:
        async with given.app.worker(queues=["billing"]) as worker:
            await worker.drain()
            await queue.clean("completed")
            await charge.options(id="0199c2f0a1b27000b4a1f3c2d5e6f708").enqueue(customer="c1", amount=5)
            await charge.enqueue(customer="c2", amount=5)
            await worker.drain()
        return {"job": queue.job("0199c2f0a1b27000b4a1f3c2d5e6f708")}

    given.each = fail
    return {"billing": queue}


@scene("docs/guides/dead_letters.md")
async def dead_letters(given: Given) -> Names:
    return billing(given)


@scene("docs/guides/redriving.md")
async def redriving(given: Given) -> Names:
    return billing(given)


@scene("docs/guides/durability.md")
async def durability(given: Given) -> Names:
    pair = given.stack.enter_context(raised_pair(given.directory))
    app = given.app_on(pair.url)

    @app.queue("orders").task
    async def charge(order: int) -> None: ...

    return {"charge": charge}


@scene("docs/guides/options.md")
async def options(given: Given) -> Names:
    pair = given.stack.enter_context(raised_pair(given.directory))
    email = given.app_on(pair.url).queue("email")
    return {"email": email, "send": sending(email)}


@scene("docs/guides/encrypting.md")
async def encrypting(given: Given) -> Names:
    given.monkeypatch.setenv("PAYLOAD_KEYS", f"{qbull.Encrypted.new_key()},{qbull.Encrypted.new_key()}")
    return {}


@scene("docs/guides/enqueueing.md")
async def enqueueing(given: Given) -> Names:
    send = sending(given.app.queue("email"))
    await given.worker()
    return {"send": send}


@scene("docs/guides/by_name.md")
@scene("docs/howto/call_without_the_code.md")
async def by_name(given: Given) -> Names:
    """Another program has the code, and its worker runs; the stub is the one that the command writes."""
    from qbull.cli.stub import write_stub
    from qbull.store.verbs.descriptions import TaskDescriptions

    elsewhere = qbull.App()
    queue = elsewhere.queue("email")

    @queue.task
    async def welcome(user_id: int, locale: str = "en") -> str:
        return f"{locale} {user_id}"

    await given.stack.enter_async_context(elsewhere.worker())
    described = await TaskDescriptions(given.app._client().store).of("email", ["welcome"])
    given.module("tasks_stub")
    exec(write_stub({"email": described}), vars(sys.modules["tasks_stub"]))
    return {}


@scene("docs/guides/events.md")
async def events(given: Given) -> Names:
    queue = given.app.queue("email")
    send = sending(queue)
    places: list[str] = []
    await given.worker()

    async def happen() -> None:
        while True:
            await send.enqueue("a@b.c")
            await asyncio.sleep(0.05)

    given.soon(happen())

    async def handle(event: qbull.Event) -> None:
        assert event.state == "completed"

    def save_place(place: str) -> None:
        places.append(place)
        given.enough.set()

    return {
        "queue": queue,
        "print": lambda *seen: given.enough.set(),
        "handle": handle,
        "load_place": lambda: places[-1] if places else None,
        "save_place": save_place,
    }


@scene("docs/guides/expiring.md")
async def expiring(given: Given) -> Names:
    notices = given.app.queue("notices")

    @notices.task
    async def push(text: str) -> None: ...

    return {"notices": notices, "push": push}


@scene("docs/operate/security.md")
async def audit_log(given: Given) -> Names:
    return {"billing": given.app.queue("billing")}


@scene("docs/howto/rerun_a_step.md")
async def rerun_a_step(given: Given) -> Names:
    """A worker runs the flow before it is found again, and then the part that runs again."""

    async def work(statement: str) -> Names:
        if statement.startswith("found ="):
            await given.stack.enter_async_context(given.names["app"].worker())
            await given.names["flow"].result(timeout=20)
        return {}

    given.each = work
    return {}


@scene("docs/guides/flows.md")
async def flows(given: Given) -> Names:
    media, mail = given.app.queue("media"), given.app.queue("mail")

    @mail.task
    async def charge(order: int) -> None: ...

    @mail.task
    async def ship(order: int) -> None: ...

    @mail.task
    async def refund(order: int) -> None: ...

    await given.worker()
    return {"media": media, "mail": mail, "charge": charge, "ship": ship, "refund": refund}


@scene("docs/guides/durable_tasks.md")
async def durable_tasks(given: Given) -> Names:
    """A worker runs the task that waits for a signal, and then another one all tasks of the page."""
    from psycopg_pool import AsyncConnectionPool

    early = await given.stack.enter_async_context(AsyncExitStack())
    pool = await given.stack.enter_async_context(AsyncConnectionPool(given.fixture("database"), min_size=1))
    async with pool.connection() as made:
        await made.execute("CREATE TABLE stock (item int PRIMARY KEY, boxes int)")
        await made.execute("INSERT INTO stock VALUES (1, 5)")

    async def work(statement: str) -> Names:
        names = given.names
        if statement.startswith("handle = await pay"):
            await early.enter_async_context(names["app"].worker())
        if statement.startswith("handle = await prepare"):
            assert await names["handle"].result(timeout=20) == "parcel-7"
        if statement.startswith("handle = await fulfil"):
            await early.aclose()
            given.module("page", OutOfStock=names["OutOfStock"])
            await given.stack.enter_async_context(names["app"].worker())
            assert await (await names["collect"].enqueue(1)).result(timeout=20) == "payment-1"
            assert await (await names["buy"].enqueue(1)).result(timeout=20) == "refunded"
            assert await (await names["pack_all"].enqueue(["a"])).result(timeout=20) == ["box of a"]
            assert await (await names["reserve_stock"].enqueue(1)).result(timeout=20) == 1
            async with pool.connection() as looked:
                assert await (await looked.execute("SELECT boxes FROM stock")).fetchone() == (4,)
            assert await (await names["import_all"].enqueue()).result(timeout=20) is None
            sleeping = await names["remind"].enqueue(1)
            while (await sleeping.why()).reasons[0].code != "sleeping":
                await asyncio.sleep(0.01)
            await sleeping.promote()
            assert await sleeping.result(timeout=20) == "parcel-1"
            yearly = await names["subscription"].enqueue("ada")
            for month in range(1, 12):
                while (info := await yearly.info()).suspended is None or info.continued + 1 < month:
                    await asyncio.sleep(0.01)
                await yearly.promote()
            assert await yearly.result(timeout=20) == "a year is over"
            assert await (await names["invoice"].enqueue(1)).result(timeout=20) == "invoice 1"
            labels = await (await names["send_out"].enqueue(["a", "b"])).result(timeout=20)
            assert labels == ["label of a", "label of b"]
        return {}

    given.each = work
    return {"pool": pool}


@scene("docs/guides/streams.md")
async def streams(given: Given) -> Names:
    """A worker runs the tasks of the page."""

    async def work(statement: str) -> Names:
        names = given.names
        if statement.startswith("handle = await answer"):
            await given.stack.enter_async_context(names["app"].worker(["chat"]))
        if statement.startswith("async def converse"):
            assert await names["handle"].result(timeout=20) == "It depends."
        return {}

    given.each = work
    return {}


@scene("docs/guides/inside_a_task.md")
async def inside_a_task(given: Given) -> Names:
    return {"chat": given.app.queue("chat")}


@scene("docs/guides/live_settings.md")
async def live_settings(given: Given) -> Names:
    return {"email": given.app.queue("email")}


@scene("docs/guides/looking.md")
async def looking(given: Given) -> Names:
    email = given.app.queue("email")
    job = await sending(email).enqueue("a@b.c")
    return {"email": email, "job": job}


@scene("docs/guides/moving_schedules.md")
async def moving_schedules(given: Given) -> Names:
    async def another_queue(statement: str) -> Names:
        return {"maintenance": qbull.App().queue("maintenance")}

    given.each = another_queue
    return {}


@scene("docs/guides/pausing.md")
async def pausing(given: Given) -> Names:
    return {"email": given.app.queue("email")}


@scene("docs/guides/postgres.md")
async def postgres(given: Given) -> Names:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    database = given.fixture("database")
    given.app.database = database
    pool = await given.stack.enter_async_context(AsyncConnectionPool(database, min_size=1))
    conn = await given.stack.enter_async_context(await AsyncConnection.connect(database))
    async with pool.connection() as made:
        await made.execute(
            "CREATE TABLE orders (id serial PRIMARY KEY, product text, status text NOT NULL DEFAULT 'pending')"
        )
    orders = given.app.queue("orders")

    @orders.task
    async def process_order(order_id: int) -> None: ...

    @orders.task
    async def charge(order_id: int) -> None: ...

    async def another_queue(statement: str) -> Names:
        """The page declares one task in several ways."""
        return {"orders": qbull.App(database=database).queue("orders")}

    given.each = another_queue
    return {
        "AsyncConnection": AsyncConnection,
        "pool": pool,
        "conn": conn,
        "product": "Laptop",
        "process_order": process_order,
        "charge": charge,
    }


@scene("docs/guides/job_logging.md")
async def job_logging(given: Given) -> Names:
    return {"reports": given.app.queue("reports")}


@scene("docs/guides/progress_and_logs.md")
async def progress_and_logs(given: Given) -> Names:
    reports = given.app.queue("reports")
    job = await sending(reports).enqueue("a@b.c")
    return {"reports": reports, "job": job}


@scene("docs/guides/rate_limits.md")
async def rate_limits(given: Given) -> Names:
    return {"post": Service().get}


@scene("docs/guides/shared_limits.md")
async def shared_limits(given: Given) -> Names:
    """A worker has declared the limit that the page changes."""
    store = given.app._client().store
    await declare_limit(store, qbull.Limit("openai", rate=qbull.Rate(500, per=60), concurrency=20))
    return {"post": Service().get}


@scene("docs/guides/repartitioning.md")
async def repartitioning(given: Given) -> Names:
    messages = given.app.queue("messages", partitions=4, order="key")
    await sending(messages).options(key="+54").enqueue("hello")
    await given.worker()
    return {"messages": messages}


@scene("docs/guides/results.md")
async def results(given: Given) -> Names:
    @given.app.queue("reports").task
    async def render(pages: int) -> str:
        return "page " * pages

    await given.worker()
    return {"render": render}


@scene("docs/guides/retries.md")
async def retries(given: Given) -> Names:
    return {"client": Service()}


@scene("docs/guides/schedules.md")
async def schedules(given: Given) -> Names:
    @given.app.queue("upkeep").task
    async def clean(older_than: int) -> None: ...

    @given.app.queue("erp").task
    async def sync() -> None: ...

    return {"clean": clean}


@scene("docs/guides/testing.md")
async def testing(given: Given) -> Names:
    app = qbull.App("redis://127.0.0.1:1/0")

    @app.queue("mail").task
    async def welcome(email: str) -> None: ...

    @app.queue("reminders").task
    async def remind(email: str) -> None: ...

    async def signup(email: str) -> None:
        await welcome.enqueue(email=email)
        await remind.options(delay=86_400).enqueue(email=email)

    async def charge(order: int) -> str:
        raise AssertionError("a real payment")

    async def ship(order: int, payment: str) -> str:
        raise AssertionError("a real parcel")

    @app.queue("orders").task(durable=True)
    async def fulfil(order: int) -> str:
        job = qbull.current_job()
        payment = await job.step(charge, order)
        await job.sleep(hours=24)
        await job.wait_for("approval", type=bool)
        return await job.step(ship, order, payment)

    class Client:
        """Of a web application that signs up whoever is posted to it."""

        def post(self, path: str, json: dict[str, str]) -> None:
            welcome.enqueue_sync(email=json["email"])

    with inline(app) as some:
        await signup("ada@example.org")
    with inline(qbull.App()) as none:
        pass

    async def choose(statement: str) -> Names:
        return {"jobs": none if "assert_not" in statement else some}

    given.module("shop", app=app, signup=signup, welcome=welcome, fulfil=fulfil, charge=charge, ship=ship)
    given.fixtures = {"qbull_inline": lambda: inline(app), "qbull_server": lambda: embedded(app)}
    given.each = choose
    return {"welcome": welcome, "signup": signup, "client": Client()}


@scene("docs/guides/uniqueness.md")
async def uniqueness(given: Given) -> Names:
    return {"search": given.app.queue("search")}


@scene("docs/guides/why.md")
async def why(given: Given) -> Names:
    return {"job": await sending(given.app.queue("email")).enqueue("a@b.c")}


@scene("docs/guides/workers.md")
async def workers(given: Given) -> Names:
    await sending(given.app.queue("email")).enqueue("a@b.c")

    async def forever() -> None:
        """Until somebody stops it: at once."""

    return {"forever": forever}


@scene("docs/guides/changing.md")
async def changing(given: Given) -> Names:
    email = given.app.queue("email")

    @email.task
    async def remind(user: str, text: str) -> None: ...

    return {"email": email, "remind": remind}
