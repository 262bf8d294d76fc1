"""Security: TLS, and users with the least rights. Every line of the page is run, and each role works under it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from shell import Shell
from web import ADMIN, opened
from web import PASSWORD as WEB_PASSWORD

import qbull
from qbull.store.rights import COMMAND_VERSIONS
from relay import relaying, server_context
from topology import DURABLE, PASSWORD, Node, wait_for

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "security.md"
LINES = {line.split()[2]: line for line in re.findall(r"^ACL SETUSER .*$", PAGE.read_text(), re.MULTILINE)}
ROLES = ["producer", "worker", "relay", "reader", "admin", "api", "mover"]

pytestmark = pytest.mark.xdist_group("security")


def lines_for(node: Node) -> dict[str, str]:
    """The lines of the page as this server takes them: an older one refuses a line with a newer command."""
    newer = {f"+{command}" for command, since in COMMAND_VERSIONS.items() if since > node.version}
    return {
        role: " ".join(word for word in line.split() if word not in newer) for role, line in LINES.items()
    }


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A server with a user for each role, made by the lines of the page, and nothing in it."""
    node = Node(tmp_path / "server", DURABLE)
    node.start()
    try:
        wait_for(node.answers)
        for line in lines_for(node).values():
            node.tell(*line.replace("PASSWORD", "word").split())
        node.tell("ACL", "LOG", "RESET")
        yield node
    finally:
        node.kill()


def app_of(node: Node, role: str) -> qbull.App:
    return qbull.App(f"redis://{role}:word@{node.place}/0")


class OrdersApp:
    """The same queues in every app."""

    def __init__(self, app: qbull.App) -> None:
        self.app = app
        self.orders = app.queue(
            "orders", order="key", retry=qbull.Retry(attempts=2, backoff="fixed", delay=0)
        )

        @self.orders.task(key="{customer}")
        async def charge(customer: str, cents: int) -> int:
            if cents < 0:
                raise ValueError("a refund is no charge")
            return cents

        @self.orders.task
        async def greet(name: str) -> str:
            return name

        self.charge, self.greet = charge, greet


def denied(node: Node) -> list[tuple[str, str]]:
    """What was refused to whom."""
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in node.tell("ACL", "LOG")]
    return [(row[b"username"].decode(), row[b"object"].decode()) for row in rows]


def test_the_page_has_the_lines_that_the_command_prints(tmp_path: Path) -> None:
    shell = Shell("redis://localhost", tmp_path)

    for role in ROLES:
        line = shell.ok("acl", role, "--prefix", "qbull", "--server-version", "8.0")
        assert LINES[role] == line.strip()
    partner = ("acl", "producer", "--write-only", "--user", "partner", "--queue", "orders")
    line = shell.ok(*partner, "--prefix", "qbull", "--server-version", "8.0")
    assert LINES["partner"] == line.strip()
    assert list(LINES) == [*ROLES, "partner"]


def test_the_command_asks_the_server_for_its_version(node: Node, tmp_path: Path) -> None:
    here = Shell(f"redis://:{PASSWORD}@{node.place}", tmp_path)
    nowhere = Shell("redis://127.0.0.1:1", tmp_path)

    assert here.ok("acl", "producer", "--prefix", "qbull").strip() == lines_for(node)["producer"]
    line = nowhere.ok("acl", "producer", "--prefix", "qbull")
    assert "client|setinfo" not in line, "the line for Redis 7.0, which every newer server accepts too"
    assert (
        line.strip() == nowhere.ok("acl", "producer", "--prefix", "qbull", "--server-version", "7.0").strip()
    )


async def test_a_producer_enqueues_and_waits_for_results(node: Node) -> None:
    async with app_of(node, "producer") as app, app_of(node, "worker") as elsewhere:
        orders_app = OrdersApp(app)
        async with OrdersApp(elsewhere).app.worker():
            plain = await orders_app.greet.enqueue(name="Ada")
            urgent = await orders_app.greet.options(priority=1, id="once").enqueue(name="Bob")
            again = await orders_app.greet.options(priority=1, id="once").enqueue(name="Bob")
            later = await orders_app.charge.options(delay=0.1).enqueue(customer="c", cents=1)
            many = await orders_app.charge.enqueue_many([{"customer": "c", "cents": n} for n in range(50)])
            flow = await qbull.chain(orders_app.greet.step("Eve"), orders_app.charge.step("c", 7)).enqueue()

            assert await plain.result(timeout=20) == "Ada"
            assert await urgent.result(timeout=20) == "Bob"
            assert [await job.result(timeout=20) for job in many] == list(range(50))
            assert await later.result(timeout=20) == 1
            assert await flow.result(timeout=20) == 7
            assert not again.created
            assert await plain.state() == "completed"

    assert denied(node) == []


async def test_a_write_only_producer_enqueues_and_reads_nothing(node: Node) -> None:
    url = f"redis://partner:word@{node.place}/0"
    async with qbull.App(url, write_only=True) as app, app_of(node, "worker") as elsewhere:
        job = await OrdersApp(app).charge.enqueue(customer="c", cents=7)
        assert denied(node) == []
        async with OrdersApp(elsewhere).app.worker() as worker:
            await worker.drain()
        with pytest.raises(qbull.ServerRefused, match='user "partner" may not'):
            await job.result(timeout=1)

        async with app_of(node, "producer") as reader:
            assert await OrdersApp(reader).orders.job(job.id).result(timeout=20) == 7


async def test_a_producer_enqueues_by_name(node: Node) -> None:
    async with app_of(node, "worker") as app, app_of(node, "producer") as producer:
        queue = app.queue("by-name")

        @queue.task
        async def pay(customer: str) -> str:
            return customer

        async with app.worker():
            job = await producer.send("by-name", "pay", {"customer": "c"})
            assert await job.result(timeout=10) == "c"
            with pytest.raises(qbull.NotFound, match="there is: pay"):
                await producer.send("by-name", "play", {"customer": "c"})


async def test_a_worker_runs_retries_and_buries_jobs(node: Node) -> None:
    async with app_of(node, "producer") as elsewhere, app_of(node, "worker") as app:
        other, orders_app = OrdersApp(elsewhere), OrdersApp(app)
        await other.charge.enqueue_many([{"customer": "c", "cents": n} for n in range(100)])
        bad = await other.charge.enqueue(customer="d", cents=-1)
        await other.charge.options(delay=0.1).enqueue(customer="e", cents=1)
        async with orders_app.app.worker() as first, orders_app.app.worker():
            await first.drain()
        assert await bad.state() == "failed"

    assert denied(node) == []


async def test_a_reader_looks_at_everything(node: Node, tmp_path: Path) -> None:
    async with app_of(node, "admin") as elsewhere:
        other = OrdersApp(elsewhere)
        await other.charge.enqueue_many([{"customer": "c", "cents": n} for n in range(3)])
        await other.charge.options(delay=60).enqueue(customer="d", cents=1)
        [first, *_] = await other.orders.jobs("waiting")
        async with app_of(node, "reader") as app:
            orders_app = OrdersApp(app)
            stats = await orders_app.orders.stats()
            assert (stats.waiting, stats.delayed) == (3, 1)
            for state in ("waiting", "active", "completed", "failed", "delayed", "cancelled"):
                await orders_app.orders.jobs(state)
            info = await orders_app.orders.job(first.id).info()
            assert info is not None and info.state == "waiting"

    shell = Shell(f"redis://reader:word@{node.place}/0", tmp_path)
    shell.environment["QBULL_PREFIX"] = "qbull"
    for command in (
        ["queues"],
        ["stats", "orders"],
        ["jobs", "orders"],
        ["workers"],
        ["partitions", "orders"],
        ["schedules"],
    ):
        await asyncio.to_thread(shell.ok, *command)
    assert denied(node) == []


async def test_an_admin_does_what_people_do(node: Node, tmp_path: Path) -> None:
    async with app_of(node, "admin") as app, app_of(node, "worker") as elsewhere:
        orders_app = OrdersApp(app)
        bad = await orders_app.charge.enqueue(customer="d", cents=-1)
        worker = OrdersApp(elsewhere).app
        async with worker.worker() as running:
            await running.drain()
        assert await bad.state() == "failed"

        await orders_app.orders.pause()
        await orders_app.orders.resume()
        await bad.retry()
        later = await orders_app.greet.options(delay=60).enqueue(name="Ada")
        await later.promote()
        await later.cancel()
        await later.remove()
        async with worker.worker() as running:
            await running.drain()
        await orders_app.orders.redrive()
        async with worker.worker() as running:
            await running.drain()
        await orders_app.orders.clean("failed")
        assert (await orders_app.orders.stats()).total == 0

        await app.schedules.upsert("nightly", orders_app.greet, cron="30 2 * * *", args={"name": "Ada"})
        await app.schedules.pause("nightly")
        await app.schedules.resume("nightly")
        await (await app.schedules.run("nightly")).remove()
        assert [info.name for info in await app.schedules.list()] == ["nightly"]
        await app.schedules.remove("nightly")

    shell = Shell(f"redis://admin:word@{node.place}/0", tmp_path)
    shell.environment["QBULL_PREFIX"] = "qbull"
    said = await asyncio.to_thread(shell.ok, "doctor")
    assert 'durability: "durable" is supported' in said
    assert denied(node) == []


async def test_the_api_serves_people_and_their_tokens(node: Node) -> None:
    async with app_of(node, "api") as app:
        orders_app = OrdersApp(app)
        job = await orders_app.greet.enqueue(name="Ada")
        async with opened(app) as web:
            admin, nobody = await web.person(ADMIN), await web.person()
            assert (await nobody.get("/api/queues/health"))["status"]
            assert "orders" in (await admin.get("/api/queues/stats"))["queues"]
            assert (await admin.get(f"/api/queues/orders/jobs/{job.id}"))["id"] == job.id
            await admin.post("/api/queues/orders/jobs", {"task": "greet", "payload": {"name": "Bob"}})
            made = await admin.post("/api/tokens", {"name": "ci", "role": "viewer"})
            assert (await admin.get("/api/tokens"))["tokens"]
            await (await web.person(made["token"])).get("/api/queues/orders/jobs", state="waiting")
            await nobody.post("/api/login", {"password": WEB_PASSWORD})
            await admin.get("/api/audit")

    assert denied(node) == []


FORBIDDEN = [
    ["KEYS", "*"],
    ["FLUSHALL"],
    ["CONFIG", "SET", "appendfsync", "no"],
    ["MONITOR"],
    ["REPLICAOF", "NO", "ONE"],
    ["ACL", "LIST"],
    ["SHUTDOWN"],
    ["SCRIPT", "FLUSH"],
    ["HGET", "{other:orders:0}:index", "a"],
    ["SUBSCRIBE", "other:bell"],
    ["EVAL", "return redis.call('HGET', '{other:orders:0}:index', 'a')", "1", "{qbull:orders:0}:"],
    ["EVAL", "return redis.call('FLUSHALL')", "1", "{qbull:orders:0}:"],
]
A_TOKEN = ["EVAL", "return redis.call('HSET', '{qbull}:tokens', 'me', 'admin')", "1", "{qbull:orders:0}:"]
NOT_FOR = {
    "producer": [
        ["XREADGROUP", "GROUP", "workers", "w", "STREAMS", "{qbull:orders:0}:ready:5", ">"],
        ["CONFIG", "GET", "*"],
        A_TOKEN,
    ],
    "worker": [["CONFIG", "GET", "*"], A_TOKEN],
    "relay": [["HGETALL", "{qbull:orders:0}:index"], ["CONFIG", "GET", "*"], A_TOKEN],
    "reader": [
        ["HSET", "{qbull:orders:0}:index", "a", "b"],
        [
            "EVAL",
            "return redis.call('XADD', '{qbull:orders:0}:ready:5', '*', 'a', 'b')",
            "1",
            "{qbull:orders:0}:",
        ],
        ["CONFIG", "GET", "*"],
    ],
    "admin": [["XREADGROUP", "GROUP", "workers", "w", "STREAMS", "{qbull:orders:0}:ready:5", ">"], A_TOKEN],
    "mover": [["XREADGROUP", "GROUP", "workers", "w", "STREAMS", "{qbull:orders:0}:ready:5", ">"], A_TOKEN],
    "api": [["XREADGROUP", "GROUP", "workers", "w", "STREAMS", "{qbull:orders:0}:ready:5", ">"]],
}


@pytest.mark.parametrize("role", ROLES)
async def test_what_is_none_of_a_roles_business_is_refused(node: Node, role: str) -> None:
    async with app_of(node, role) as app:
        server = app._client().store.server
        for command in [*FORBIDDEN, *NOT_FOR[role]]:
            with pytest.raises(qbull.ServerRefused, match=f'user "{role}" may not ') as refused:
                await server.call(*command)
            assert "\n" not in str(refused.value)
            assert "word" not in str(refused.value)


async def test_a_missing_right_is_named_in_one_line(node: Node) -> None:
    node.tell("ACL", "SETUSER", "producer", "-zadd")
    async with app_of(node, "producer") as app:
        orders_app = OrdersApp(app)

        await orders_app.greet.enqueue(name="Ada")
        with pytest.raises(qbull.ServerRefused) as refused:
            await orders_app.greet.options(delay=60).enqueue(name="Bob")

        fact = (
            'may not run zadd; run "ACL SETUSER producer +zadd", or give it all rights of its role as '
            '"qbull acl" prints them'
            if node.version >= (7, 2)
            else 'may not run a command of this call; give it the rights of its role as "qbull acl" prints them, '
            "with this prefix"
        )
        assert str(refused.value) == f'redis://***@{node.place}/0: user "producer" {fact}'


async def test_a_user_of_another_prefix_is_told_which_name_it_lacks(node: Node) -> None:
    async with qbull.App(f"redis://producer:word@{node.place}/0", prefix="shop") as app:
        orders_app = OrdersApp(app)

        with pytest.raises(
            qbull.ServerRefused,
            match=r'user "producer" may not use the name \{shop:orders\}:settings; give it',
        ):
            await orders_app.greet.enqueue(name="Ada")


async def test_a_user_may_be_kept_to_some_queues(node: Node, tmp_path: Path) -> None:
    line = await asyncio.to_thread(
        Shell("redis://localhost", tmp_path).ok,
        "acl",
        "producer",
        "--user",
        "web",
        "--queue",
        "orders",
        "--prefix",
        "qbull",
        "--server-version",
        ".".join(map(str, node.version)),
    )
    node.tell(*line.replace("PASSWORD", "word").split())
    async with app_of(node, "web") as app:

        @app.queue("salaries").task
        async def raise_(who: str) -> None: ...

        assert (await OrdersApp(app).greet.enqueue(name="Ada")).created
        with pytest.raises(
            qbull.ServerRefused, match=r'user "web" may not use the name \{qbull:salaries\}:settings'
        ):
            await raise_.enqueue(who="me")


async def test_jobs_go_over_tls(node: Node, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with relaying(node.port, server_context(ca)) as relay:
        url = f"rediss://:{PASSWORD}@{relay.place}/0?ssl_ca_certs={tmp_path / 'ca.pem'}"
        async with qbull.App(url) as app:
            orders_app = OrdersApp(app)
            async with app.worker():
                job = await orders_app.greet.enqueue(name="Ada")
                assert await job.result(timeout=20) == "Ada"
        assert relay.secured > 3

        async with qbull.App(url.partition("?")[0]) as careless:
            with pytest.raises(qbull.ServerRefused, match="its certificate is not trusted"):
                await OrdersApp(careless).greet.enqueue(name="Ada")
