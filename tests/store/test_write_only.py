"""Write-only producers: they enqueue everything, and read neither payloads nor results, whatever they try."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from msgspec.structs import replace
from partition_driver import PartitionDriver

import qbull
from qbull.config import QueueSettings
from qbull.errors import ConfigError, ServerRefused
from qbull.store.rights import PASSWORD_PLACEHOLDER, AclScope, acl
from qbull.store.store import Store
from qbull.store.verbs.deposit import deposit, has_id
from qbull.store.verbs.layout import repartition
from topology import DURABLE, PASSWORD, Node, wait_for

SECRET = "card-4111-1111"
READS: tuple[tuple[str, ...], ...] = (
    ("GET",), ("GETEX",), ("GETDEL",), ("GETRANGE", "0", "-1"), ("SET", "x", "GET"), ("SET", "x", "GET", "EX", "60"), ("DUMP",),
    ("HGETALL",), ("HVALS",), ("HSCAN", "0"), ("HRANDFIELD", "5", "WITHVALUES"),
    ("LRANGE", "0", "-1"), ("LINDEX", "0"), ("LPOP",), ("RPOP",),
    ("XRANGE", "-", "+"), ("XREVRANGE", "+", "-"), ("XINFO", "STREAM"),
    ("SMEMBERS",), ("SPOP",), ("ZRANGE", "0", "-1"), ("ZPOPMIN",), ("SORT", "BY", "nosort"), ("OBJECT", "ENCODING"),
)  # fmt: skip
"""Commands that return content, without their key, which comes after the first word."""

pytestmark = [pytest.mark.xdist_group("security"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("write-only") / "server", DURABLE)
    node.start()
    try:
        wait_for(node.answers)
        yield node
    finally:
        node.kill()


def grant(node: Node, user: str, scope: AclScope) -> None:
    node.tell("FLUSHALL")
    line = acl(["producer"], replace(scope, version=node.version), user)
    assert node.tell(*line.replace(PASSWORD_PLACEHOLDER, "word").split()) == b"OK"
    node.tell("ACL", "LOG", "RESET")


def app_of(node: Node, user: str | None = None, **options: Any) -> qbull.App:
    who = f":{PASSWORD}" if user is None else f"{user}:word"
    return qbull.App(f"redis://{who}@{node.place}/0", prefix="test", **options)


class PaymentsApp:
    def __init__(self, app: qbull.App, partitions: int = 2) -> None:
        self.app = app
        self.payments = app.queue(
            "payments", order="key", partitions=partitions, retry=qbull.Retry(attempts=1)
        )

        @self.payments.task(key="{customer}")
        async def pay(customer: str, card: str) -> str:
            if customer == "poor":
                raise ValueError(f"no money on {card}")
            return f"paid with {card}"

        self.pay = pay


@pytest.fixture
async def filled(node: Node) -> Node:
    """Jobs of a write-only producer in every state, some behind others of their lanes."""
    grant(node, "partner", AclScope("test", write_only=True))
    async with app_of(node, "partner", write_only=True) as app, app_of(node) as elsewhere:
        mine, theirs = PaymentsApp(app), PaymentsApp(elsewhere)
        await mine.pay.enqueue(customer="done", card=SECRET)
        await mine.pay.enqueue(customer="poor", card=SECRET)
        async with theirs.app.worker() as worker:
            await worker.drain()
        await mine.pay.options(delay=600, expires=3600).enqueue(customer="later", card=SECRET)
        await mine.pay.options(priority=1).enqueue(customer="first", card=SECRET)
        await mine.pay.enqueue_many([{"customer": "lane", "card": SECRET} for _ in range(5)])
        await elsewhere.schedules.upsert(
            "daily", "payments/pay", args={"customer": "c", "card": SECRET}, cron="0 9 * * *"
        )
    assert [row for row in node.tell("ACL", "LOG") if b"partner" in row] == []
    return node


async def test_a_write_only_producer_enqueues_everything_and_workers_run_it(node: Node) -> None:
    grant(node, "partner", AclScope("test", write_only=True))
    async with app_of(node, "partner", write_only=True) as app, app_of(node) as elsewhere:
        mine, theirs = PaymentsApp(app), PaymentsApp(elsewhere)
        once = mine.pay.options(id="once")
        first, again = await once.enqueue(customer="a", card="1"), await once.enqueue(customer="a", card="1")
        jobs = await mine.pay.enqueue_many([{"customer": f"c{n % 3}", "card": str(n)} for n in range(60)])
        jobs += await asyncio.gather(*(mine.pay.enqueue(customer="d", card=str(n)) for n in range(20)))
        jobs.append(await mine.pay.options(delay=0.1).enqueue(customer="e", card="x"))
        jobs.append(await mine.pay.options(priority=1).enqueue(customer="f", card="x"))

        async with theirs.app.worker():
            results = [await elsewhere.job("payments", job.id).result(timeout=30) for job in jobs]

        assert (first.created, again.created) == (True, False)
        assert results[:60] == [f"paid with {n}" for n in range(60)]
        assert (await theirs.payments.stats()).completed == 83
    assert node.tell("ACL", "LOG") == []


def seen_by(node: Node, user: str) -> tuple[bytes, int]:
    """Everything that a user gets out of the server by any command on any name, and how many were answered."""
    names = node.tell("KEYS", "*")
    seen, answered = [], 0
    with closing(redis.Redis.from_url(f"redis://{user}:word@{node.place}/0")) as server:
        for name in names:
            words = [(one[0], name, *one[1:]) for one in READS]
            words += [(one[0], one[1], name, *one[2:]) for one in READS if one[0] in ("XINFO", "OBJECT")]
            if node.tell("TYPE", name) == b"hash":
                fields = node.tell("HKEYS", name)
                words += [("HMGET", name, *fields), *(("HGET", name, field) for field in fields)]
                words += [("HINCRBY", name, field, 1) for field in fields if field == b"none"]
            base = name.partition(b"}:")[0] + b"}:"
            for command in words:
                script = "return redis.call(unpack(ARGV))"
                for sent in (command, ("EVAL", script, 1, base, *command), ("EVAL", script, 0, *command)):
                    try:
                        seen.append(repr(server.execute_command(*sent)).encode())
                        answered += 1
                    except redis.ResponseError as error:
                        seen.append(str(error).encode())
    return b"\n".join(seen), answered


async def test_whatever_a_write_only_producer_reads_no_payload_and_no_result_is_in_it(filled: Node) -> None:
    seen, answered = seen_by(filled, "partner")

    assert SECRET.encode() not in seen
    assert answered > 50, "it was let in at all"


async def test_the_same_reads_show_everything_to_a_plain_producer(filled: Node) -> None:
    """Without this the test above would prove nothing."""
    line = acl(["producer"], AclScope("test", version=filled.version), "plain").replace(
        PASSWORD_PLACEHOLDER, "word"
    )
    filled.tell(*line.split())

    seen, _ = seen_by(filled, "plain")

    assert SECRET.encode() in seen


async def test_a_write_only_producer_of_some_queues_writes_to_no_others(node: Node) -> None:
    grant(node, "partner", AclScope("test", queues=("payments",), write_only=True))
    async with app_of(node, "partner", write_only=True) as app:
        job = await PaymentsApp(app).pay.enqueue(customer="a", card="1")
        other = app.queue("other").task(name="any")(_nothing)
        with pytest.raises(ServerRefused, match="may not use the name"):
            await other.enqueue()
        with pytest.raises(ServerRefused):
            await job.state()
        with pytest.raises(ServerRefused):
            await job.result(timeout=1)


async def _nothing() -> None: ...


async def test_a_unique_job_is_refused_with_the_reason(node: Node) -> None:
    grant(node, "partner", AclScope("test", write_only=True))
    async with app_of(node, "partner", write_only=True) as app:
        pay = PaymentsApp(app).pay.options(unique=qbull.Unique(60))
        with pytest.raises(ConfigError, match=r"App\(write_only=True\): a unique job has to read"):
            await pay.enqueue(customer="a", card="1")


async def test_jobs_follow_a_change_of_the_partitions(node: Node) -> None:
    grant(node, "partner", AclScope("test", write_only=True))
    async with app_of(node, "partner", write_only=True) as app, app_of(node) as elsewhere:
        mine, theirs = PaymentsApp(app), PaymentsApp(elsewhere)
        before = await mine.pay.options(id="before").enqueue(customer="a", card="0")
        await theirs.payments.repartition(3)
        after = [await mine.pay.enqueue(customer="a", card=str(n)) for n in range(1, 4)]
        again = await mine.pay.options(id="before").enqueue(customer="a", card="0")

        async with theirs.app.worker():
            found = [await elsewhere.job("payments", job.id).result(timeout=30) for job in (before, *after)]

    assert found == [f"paid with {n}" for n in range(4)]
    assert not again.created, "the older partition has it"


async def test_a_deposit_that_is_sent_twice_gets_the_same_answer_and_adds_nothing(node: Node) -> None:
    node.tell("FLUSHALL")
    store = Store(f"redis://:{PASSWORD}@{node.place}/0", "test")
    driver = await PartitionDriver.open(store, order="key")
    jobs = [driver.job("a", "k"), driver.job("b", "k"), driver.job("later", when=60_000)]

    answers = [await deposit(driver.partition, jobs, None, "token") for _ in range(2)]
    known = await deposit(driver.partition, [*jobs, driver.job("c")])

    assert answers == [set(), set()]
    assert known == {0, 1, 2}
    assert [await has_id(driver.partition, id) for id in ("a", "c", "none")] == [True, True, False]
    await repartition(store, QueueSettings("q", order="key"), 2)
    assert await deposit(driver.partition, [driver.job("d")]) is None, "it is closed"
    await store.close()


@pytest.mark.parametrize("version", [(7, 0), (7, 2), (8, 0)])
def test_the_line_is_accepted_by_the_server(version: tuple[int, int], node: Node) -> None:
    version = min(version, node.version)
    line = acl(["producer"], AclScope("test", write_only=True, version=version), "somebody")

    assert node.tell(*line.split()) == b"OK"
    node.tell("ACL", "DELUSER", "somebody")


def test_only_producers_can_be_write_only() -> None:
    for roles in (["worker"], ["producer", "worker"]):
        with pytest.raises(ConfigError, match="for the role producer alone"):
            acl(roles, AclScope("test", write_only=True), "somebody")


async def test_a_write_only_producer_sends_by_name_and_is_checked(node: Node) -> None:
    grant(node, "partner", AclScope("test", write_only=True))
    async with app_of(node) as elsewhere, app_of(node, "partner", write_only=True) as app:
        queue = elsewhere.queue("by-name")

        @queue.task(key="{customer}")
        async def pay(customer: str) -> str:
            return customer

        async with elsewhere.worker():
            job = await app.send("by-name", "pay", {"customer": "c"})
            assert await queue.job(job.id).result(timeout=10) == "c"
            with pytest.raises(qbull.ArgumentsError, match="customer: expected string, got integer"):
                await app.send("by-name", "pay", {"customer": 1})
            with pytest.raises(qbull.NotFound, match='no task "play" is known to the server'):
                await app.send("by-name", "play", {"customer": "c"})


async def test_a_write_only_producer_stores_large_arguments_elsewhere(node: Node, tmp_path: Path) -> None:
    grant(node, "partner", AclScope("test", write_only=True))
    stored = qbull.FileArguments(tmp_path, over=100)
    async with (
        app_of(node, arguments=stored) as elsewhere,
        app_of(node, "partner", write_only=True, arguments=stored) as app,
    ):
        queue = elsewhere.queue("by-name")

        @queue.task
        async def count(text: str) -> int:
            return len(text)

        async with elsewhere.worker():
            job = await app.send("by-name", "count", {"text": "x" * 2_000_000})
            assert await queue.job(job.id).result(timeout=10) == 2_000_000
