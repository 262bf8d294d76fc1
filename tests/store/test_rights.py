"""Rights: a role's line is what its verbs and calls need, neither less nor more."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from partition_driver import CRASHED, PartitionDriver, ids_of

import qbull.store
from conftest import eventually
from qbull.config import QueueSettings
from qbull.core.durability import DURABILITIES, profile_of
from qbull.core.rate import Rate
from qbull.core.record import REPORT_ALL_FLAG
from qbull.core.route import digest
from qbull.core.schedule_rule import ScheduleRule
from qbull.errors import ConfigError, ServerRefused
from qbull.store import rights
from qbull.store.completions import ResultListener
from qbull.store.connection.requirements import MIN_SERVER_VERSION, version_in
from qbull.store.connection.scripts import script
from qbull.store.connection.server import open_server
from qbull.store.read import inspect, pages
from qbull.store.read.drain_status import drain_status
from qbull.store.read.health import read_health
from qbull.store.read.inspect import StoredJob
from qbull.store.rights import ACL_ROLES, AclScope, acl, acl_at_sentinels
from qbull.store.script_commands import commands_of
from qbull.store.store import Store
from qbull.store.verbs import alerts as board
from qbull.store.verbs import limits, live_settings
from qbull.store.verbs.declare import ScheduleDeclarations
from qbull.store.verbs.layout import repartition
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.partition import NewJob, Partition
from qbull.store.verbs.schedules import ScheduleLocation as schedule_place
from qbull.store.verbs.schedules import ScheduleStore
from qbull.store.verbs.tick import ScheduleTicks
from qbull.store.verbs.workers import RegisteredWorker
from topology import DURABLE, PASSWORD, Node, raised_cluster, raised_pair, raised_trio, wait_for

STORE = Path(qbull.store.__path__[0])
VERBS = sorted(path.stem for path in (STORE / "lua").glob("*.lua"))

HOUR = 3_600_000
pytestmark = [pytest.mark.xdist_group("security"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("rights") / "server", DURABLE)
    node.start()
    try:
        wait_for(node.answers)
        yield node
    finally:
        node.kill()


def test_every_verb_belongs_to_a_role() -> None:
    given = {verb for role in ACL_ROLES.values() for verb in role.verbs}

    assert given == set(VERBS), (
        "add the verb to the roles that need it in store/rights.py, and renew the page"
    )


def test_every_command_that_is_sent_belongs_to_a_role() -> None:
    # store/clock.py has a server of its own.
    by_users = [path for path in STORE.rglob("*.py") if path.name != "clock.py"]
    sent = {command for path in by_users for command in _sent_in(path)}
    given = {word for role in ACL_ROLES.values() for word in role.commands}
    others = {
        *rights._HANDSHAKE_COMMANDS,
        *rights._CLUSTER_COMMANDS,
        *rights._SENTINEL_COMMANDS,
        *rights._AT_SENTINELS_COMMANDS,
        "select",
    }
    others |= {word for name in DURABILITIES for word in profile_of(name).commands(cluster=True)}

    assert {"hmget", "waitaof", "xinfo|groups", "subscribe", "sentinel|replicas"} <= sent, (
        "the look itself is blind"
    )
    assert sent - given - others == set(), "add the command to the roles that send it in store/rights.py"


def _sent_in(path: Path) -> set[str]:
    """The words with which a command begins, wherever one is spelled out."""
    text = path.read_text()
    spelled = re.findall(
        r"""\.(?:call|send_command|_run)\(\s*(?:key, )?"([A-Z_]+)"(?:, "([A-Z-]+)")?""", text
    )
    for several in re.findall(r"\.send\((\(.*)\)", text):
        spelled += re.findall(r"""\("([A-Z_]+)"(?:, "([A-Z-]+)")?""", several)
    containers = ("CLIENT", "CLUSTER", "CONFIG", "SENTINEL", "XGROUP", "XINFO")
    return {(f"{word}|{sub}" if word in containers else word).lower() for word, sub in spelled}


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_script_calls_is_spelled_out(verb: str) -> None:
    """A command that is put together at run time would be in nobody's rights."""
    source = re.sub(r"--.*", "", script(verb).source)
    computed = re.findall(r"redis\.p?call\((?!')[^,]*", source)

    assert set(computed) <= {"redis.call(command"}, "only in_chunks may do that"
    assert commands_of(verb) <= {word.lower() for word in re.findall(r"'([A-Z]+)'", source)} | {
        f"{container}|{sub}".lower() for container, sub in re.findall(r"'(X[A-Z]+)', '([A-Z]+)'", source)
    }


def test_only_what_a_script_can_come_to_is_counted() -> None:
    assert "time" not in commands_of("progress_read")
    assert {"lpop", "xack", "xreadgroup"}.isdisjoint(commands_of("enqueue"))
    assert {"xadd", "hset", "rpush", "zadd", "publish"} <= commands_of("enqueue")


def test_the_oldest_server_knows_every_command_of_its_lines(node: Node) -> None:
    """A server refuses a whole line for one command that it does not know. Here, a server tells their ages."""
    commands: set[str] = set()
    for role in ACL_ROLES:
        for durability in (None, *DURABILITIES):
            place = AclScope("test", topology="cluster", database=1, durability=durability)
            commands |= set(re.findall(r"\+(\S+)", acl([role], place, role)))
    found = {}
    for command in sorted(commands):
        described = node.tell("COMMAND DOCS", command)
        if not described:
            assert rights.COMMAND_VERSIONS[command] > node.version, f"this server does not know {command}"
            found[command] = rights.COMMAND_VERSIONS[command]
            continue
        [_, facts] = described
        facts = dict(zip(facts[::2], facts[1::2], strict=True))
        found[command] = version_in(facts[b"since"].decode())

    newer = {command: since for command, since in found.items() if since > MIN_SERVER_VERSION}
    assert newer == rights.COMMAND_VERSIONS


@pytest.mark.parametrize("version", [(7, 0), (7, 2), (8, 0), None])
def test_lines_name_no_command_that_the_server_does_not_know(
    version: tuple[int, int] | None, node: Node
) -> None:
    for role in ACL_ROLES:
        line = acl([role], AclScope("test", version=version), "somebody")
        if node.version >= (version or (7, 2)):
            assert node.tell(*line.split()) == b"OK"
        assert ("client|setinfo" in line) == (version != (7, 0))
    with pytest.raises(ConfigError, match="needs WAITAOF, which servers before"):
        acl(["producer"], AclScope("test", durability="strict", version=(7, 0)), "somebody")
    node.tell("ACL", "DELUSER", "somebody")


# Each role, as it works. What is taken away from it must be missed.


async def produce(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a")
    await driver.enqueue("b", "c", key="k")
    await driver.enqueue("later", when=60_000)
    await driver.enqueue("urgent", priority=1)
    await driver.store._read_registered("q")
    results = ResultListener(store)

    async def look() -> tuple[Partition, StoredJob]:
        found = await inspect.find(driver.partition, "a")
        assert found is not None
        return driver.partition, found

    assert await inspect.find(driver.partition, "later")
    await results._announce(driver.partition)
    assert await results.wait_for("a", look, 0.01)
    await results.close()


async def produce_and_follow(store: Store) -> None:
    await produce(store)
    await repartition(store, QueueSettings("q", order="key"), 2)


async def work(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await store.register_worker("w1", RegisteredWorker(), 30)
    await store.heartbeat(30, ["w1"])
    await store.workers()
    await live_settings.read(store, driver.settings)
    assert await driver.partition.lease("w1", ["w1"])
    await driver.partition.promote()
    for delivery in await driver.fetch():
        for at in range(len(ids_of(delivery))):
            await driver.settle(delivery, at, "delay" if at else "dead", 1000)
    for delivery in await driver.fetch():
        await driver.partition.release("w1", [delivery.position])
    for delivery in await driver.fetch():
        await driver.finish(delivery)
    streams = await store.streams([driver.partition])
    await store.fetch_some(streams, "w1", 10)
    for stream in streams.values():
        await store.consumers(stream)
    await driver.partition.reclaim("w1", CRASHED, [])
    await driver.partition.holds(b"a", b"0", b"")
    await driver.partition.mark_isolated(b"a", b"0")
    await inspect.count(driver.partition)
    limited = replace(driver.settings, max_active=1, rate=Rate(1, per=1))
    await limits.acquire(store, limited, limits.TokenRequest("w1", 1, used_slots=0))
    await limits.slot_holders(store, "q")
    await limits.free_slots(store, "q", ["w1"])
    await live_settings.hold_queue(store, "q", 1.0, "later")
    await driver.partition.unlease("w1")
    await tick(store, driver)
    await watch(store, driver)
    await store.forget_worker("w1", certain=True, lost=True)
    await move(store, driver)


async def move(store: Store, driver: PartitionDriver) -> None:
    """The number of partitions changes, twice, and what is left is moved on until the first ones are gone."""
    await driver.enqueue("x1", "x2", key="x")
    moves = PartitionMoves(store, driver.settings)
    for partitions in (2, 1):
        layout = await repartition(store, driver.settings, partitions)
        await moves.all_steps()
        home = store.partition(driver.settings, layout.home(digest("x")))
        await home.enqueue([driver.job(f"{partitions}", "x"), driver.job(f"{partitions} later", when=HOUR)])
        assert (await moves.free_lanes(layout, home.number)).held == 1
    for delivery in await driver.fetch():
        await driver.finish(delivery)
    for _ in range(3):
        await moves.all_steps()
    await store.server.call(
        "HDEL", driver.partition.base + "index", "a", "b", "c", "later", "urgent", "x1", "x2"
    )
    for _ in range(3):
        await moves.retire(await store.layout(driver.settings))


async def tick(store: Store, driver: PartitionDriver) -> None:
    schedules = ScheduleStore(store)
    schedule = ScheduleRule(every=0.1, catch_up="all").schedule("s", "q", "task", b"{}", "k", "UTC")
    declared, ticks = ScheduleDeclarations(store), ScheduleTicks(store)
    assert await declared.newest("q", ["v1"]) == "v1"
    await declared.remember("q", await declared.names("q") | {"s"})
    assert await schedules.unknown([schedule]) == [schedule]
    await schedules.put(schedule, "code", driver.settings)

    async def fired() -> bool:
        look = await schedules.read(schedule_place("q", 0), (), due=10)
        ticked = await ticks.fire_due(driver.partition, look)
        return sum(one.fired for one in ticked) > 0

    await eventually(fired)
    for name, place in (await schedules.locations()).items():
        await schedules.withdraw(name, place, "code")


async def watch(store: Store, driver: PartitionDriver) -> None:
    await board.add_failures(store, "q", {"task": board.TaskFailures(1, "a", "no")})
    seen = await board.take_turn(store, "w1", 10)
    assert seen is not None
    assert await board.failures(store, "q", seen.now_ms)
    assert (await read_health(store, [driver.settings])).facts.queues
    assert await board.recently_failed(store, driver.settings)
    assert await board.newest_failed(store, driver.settings)
    assert await board.lost_workers(store) == (0, "")
    assert await board.write(store, seen, seen.state, [NewJob("m", "0 60000", driver.job("m").record)])


async def read(store: Store) -> None:
    [name] = await store.queues()
    settings = await store.settings(name)
    await store.tasks(name)
    await store.workers()
    await live_settings.read(store, settings)
    await live_settings.is_paused(store, name)
    await live_settings.history(store, name)
    [partition] = await store.partitions(settings)
    await inspect.count(partition)
    for state in ("waiting", "active", "delayed", "completed", "failed"):
        await pages.page([partition], state, 0, 10)
    await inspect.find(partition, "later")
    schedules = ScheduleStore(store)
    await schedules.locations()
    await schedules.location("s")
    await schedules.read(schedule_place("q", 0), ["s"])
    await drain_status(partition)


async def ship(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    assert await store.queues() == ["q"]
    assert await store.settings("q")
    await driver.enqueue("a")
    await driver.enqueue("b", "c", key="k")
    await driver.enqueue("later", when=60_000)
    assert await driver.partition.states(["a", "none"]) == "r-"
    await driver.enqueue("tracked", reports=REPORT_ALL_FLAG)
    entries, _ = await driver.partition.reports([], 10)
    await driver.partition.reports([entry for entry, _ in entries], 10)


async def ship_and_follow(store: Store) -> None:
    await ship(store)
    await repartition(store, QueueSettings("q", order="key"), 2)


WORK: dict[str, Callable[[Store], Awaitable[None]]] = {
    "producer": produce_and_follow,
    "worker": work,
    "relay": ship_and_follow,
    "reader": read,
}


@pytest.fixture
async def admin_store(node: Node) -> AsyncIterator[Store]:
    """Whoever brings things to do for the others."""
    store = Store(f"redis://:{PASSWORD}@{node.place}/0", "test")
    await store.open()
    yield store
    await store.close()


async def works(node: Node, role: str) -> None:
    store = Store(f"redis://{role}:word@{node.place}/0", "test")
    try:
        await store.open()
        await WORK[role](store)
    finally:
        await store.close()


async def begin(node: Node, role: str, admin_store: Store) -> None:
    """An empty server that knows no scripts; with something to do, for whoever does not bring it."""
    node.tell("FLUSHALL")
    if role not in ("producer", "relay"):
        await produce(admin_store)
    node.tell("SCRIPT", "FLUSH")
    node.tell("CONFIG", "RESETSTAT")


def grant(node: Node, role: str, *changes: str) -> None:
    line = acl([role], AclScope("test", version=node.version), role).replace(
        rights.PASSWORD_PLACEHOLDER, "word"
    )
    node.tell(*line.split(), *changes)


@pytest.mark.parametrize("role", WORK)
async def test_every_right_that_is_used_is_needed(node: Node, role: str, admin_store: Store) -> None:
    grant(node, role)
    await begin(node, role, admin_store)
    await works(node, role)
    used = {name.removeprefix("cmdstat_") for name in node.info("commandstats")} - {"auth", "info", "hello"}
    given = set(re.findall(r"\+(\S+)", acl([role], AclScope("test", version=node.version), role)))

    assert used - given - {"config|resetstat", "subscribe", "ping"} == set()
    for command in sorted((used & given) - _swallowed(role)):
        grant(node, role, f"-{command}")
        await begin(node, role, admin_store)
        named = re.escape(f'user "{role}" may not run {command};')
        # Redis 7.0 does not name the command that a script may not run.
        unnamed = "can't run this command or subcommand" if node.version < (7, 2) else named
        with pytest.raises(ServerRefused, match=f"{named}|{unnamed}"):
            await works(node, role)


def _swallowed(role: str) -> set[str]:
    """What scripts only try, and what the client library does not insist on."""
    tried = {
        word.lower()
        for verb in ACL_ROLES[role].verbs
        for word in re.findall(r"redis\.pcall\('([A-Z]+)'", script(verb).source)
    }
    return tried | {"client|setinfo", "xinfo|groups", "xinfo|consumers", "subscribe"}


async def test_a_producer_of_a_cluster_with_a_profile_needs_what_its_line_says(tmp_path: Path) -> None:
    with raised_cluster(tmp_path, DURABLE) as cluster:
        if cluster.nodes[0].version < rights.COMMAND_VERSIONS["waitaof"]:
            pytest.skip("this server has no WAITAOF")
        place = AclScope("test", topology="cluster", durability="strict")
        for node in cluster.nodes:
            node.tell(*acl(["producer"], place, "web").replace(rights.PASSWORD_PLACEHOLDER, "word").split())
            node.tell("ACL", "LOG", "RESET")
        store = Store(cluster.url.replace(f":{PASSWORD}@", "web:word@"), "test")
        driver = await PartitionDriver.open(store)
        await store.register(driver.settings, ["task"], "strict")

        assert await driver.partition.enqueue([driver.job("a")], store.confirmed("strict")) == set()
        assert [node.tell("ACL", "LOG") for node in cluster.nodes] == [[]] * 6
        await store.close()


async def test_a_producer_of_sentinels_with_a_profile_needs_what_its_lines_say(tmp_path: Path) -> None:
    with raised_trio(tmp_path, DURABLE) as trio:
        place = AclScope(
            "test", topology="sentinel", durability="replicated", version=trio.servers[0].version
        )
        for node in trio.servers:
            node.tell(*acl(["producer"], place, "web").replace(rights.PASSWORD_PLACEHOLDER, "word").split())
            node.tell("ACL", "LOG", "RESET")
        for node in trio.sentinels:
            node.tell(*acl_at_sentinels("web", place).replace(rights.PASSWORD_PLACEHOLDER, "other").split())
        url = (
            trio.url.replace(f":{PASSWORD}@", "web:word@") + "?sentinel_username=web&sentinel_password=other"
        )
        store = Store(url, "test")
        driver = await PartitionDriver.open(store)
        await store.register(driver.settings, ["task"], "replicated")

        assert await driver.partition.enqueue([driver.job("a")], store.confirmed("replicated")) == set()
        refused = [row for node in (*trio.servers, *trio.sentinels) for row in node.tell("ACL", "LOG")]
        assert [row for row in refused if b"web" in row] == []
        await store.close()


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_profile_needs_what_its_line_says(tmp_path: Path, durability: str) -> None:
    with raised_pair(tmp_path) as pair:
        version = pair.primary.version
        if durability == "strict" and version < rights.COMMAND_VERSIONS["waitaof"]:
            pytest.skip("this server has no WAITAOF")
        place = AclScope("test", durability=durability, database=3, version=version)  # type: ignore[arg-type]
        for node in (pair.primary, *pair.replicas):
            node.tell(*acl(["producer"], place, "web").replace(rights.PASSWORD_PLACEHOLDER, "word").split())
            node.tell("ACL", "LOG", "RESET")
        store = Store(pair.url.replace(f":{PASSWORD}@", "web:word@").replace("/0?", "/3?"), "test")
        driver = await PartitionDriver.open(store)
        confirmed = store.confirmed(durability)  # type: ignore[arg-type]

        assert await driver.partition.enqueue([driver.job("a")], confirmed) == set()
        assert [node.tell("ACL", "LOG") for node in (pair.primary, *pair.replicas)] == [[], []]
        await store.close()


async def test_a_right_that_is_missing_while_greeting_is_named_too(node: Node) -> None:
    node.tell("ACL", "SETUSER", "bare", "reset", "on", ">word")
    server = open_server(f"redis://bare:word@{node.place}")

    with pytest.raises(
        ServerRefused, match=r'user "bare" may not run client\|setname; run "ACL SETUSER bare'
    ):
        await server.call("PING")
    await server.close()


def test_a_role_that_is_none_is_refused() -> None:
    with pytest.raises(
        ConfigError, match='role "boss": use one of producer, worker, relay, reader, admin, api'
    ):
        acl(["boss"], AclScope("test"), "boss")
