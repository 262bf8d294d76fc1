"""The specification of retrying: which verbs are sent again after a lost reply, for how long, and which never are."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from partition_driver import PartitionDriver

from proxy import Proxy
from qbull.core.rate import Rate
from qbull.embedded.server import EmbeddedServer
from qbull.errors import ServerAway
from qbull.store import retry
from qbull.store.connection.fan_out import partitions_holding
from qbull.store.read.inspect import counts, server_time
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.schedules import ScheduleStore


@pytest.fixture
async def proxy(server: EmbeddedServer, store: Store) -> AsyncIterator[Proxy]:
    async with Proxy(server.socket).running() as proxy:
        yield proxy


@pytest.fixture
async def far(server: EmbeddedServer, proxy: Proxy) -> AsyncIterator[Store]:
    """A store that reaches the server through the proxy."""
    far = Store(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", "test")
    yield far
    await far.close()


async def losing_one_reply(proxy: Proxy, call: Callable[[], Awaitable[object]]) -> object:
    """The answer to a call whose first reply is lost on its way back."""
    before, proxy.mood = proxy.lost, "loses replies"
    calling = asyncio.ensure_future(call())
    while proxy.lost == before and not calling.done():
        await asyncio.sleep(0.001)
    proxy.mood = "fair"
    return await calling


async def test_a_verb_is_sent_again_after_a_lost_reply(proxy: Proxy, far: Store) -> None:
    driver = await PartitionDriver.open(far)
    await driver.enqueue("before")

    known = await losing_one_reply(proxy, lambda: driver.enqueue("a"))

    assert known == {0}  # the first send had added it
    assert proxy.lost >= 1
    assert (await counts([driver.partition]))[0].waiting == 2


async def test_a_settle_is_sent_again_after_a_lost_reply(proxy: Proxy, far: Store) -> None:
    driver = await PartitionDriver.open(far)
    await driver.enqueue("a")
    [delivery] = await driver.fetch()

    await losing_one_reply(proxy, lambda: driver.settle(delivery, 0, "done"))

    assert (await counts([driver.partition]))[0].completed == 1


async def test_verbs_of_a_store_of_lists_and_of_groups_are_sent_again(proxy: Proxy, far: Store) -> None:
    driver = await PartitionDriver.open(far)
    await driver.enqueue("a")

    assert await losing_one_reply(proxy, far.queues) == ["q"]
    assert await losing_one_reply(proxy, ScheduleStore(far).locations) == {}
    assert len(await losing_one_reply(proxy, lambda: counts([driver.partition]))) == 1  # type: ignore[arg-type]
    assert await losing_one_reply(proxy, lambda: server_time(far))


async def test_a_partition_that_was_found_still_retries(proxy: Proxy, far: Store) -> None:
    driver = await PartitionDriver.open(far)
    await driver.enqueue("a")

    [found] = await partitions_holding([driver.partition], "a")
    [listed] = await far.partitions(driver.settings)

    assert found is driver.partition
    assert listed.retrier is not None


async def test_a_token_that_goes_back_is_sent_once(proxy: Proxy, far: Store) -> None:
    driver = await PartitionDriver.open(far)
    rate = Rate(1, 60)
    started = await driver.partition.start(0, b"l" * 8, rate, 0)
    assert started is not None
    _, token, _ = started
    proxy.mood = "loses replies"

    with pytest.raises(ServerAway):
        await driver.partition.return_start_token(b"l" * 8, rate, token)

    assert proxy.lost == 1
    proxy.mood = "fair"
    await driver.partition.server.call("UNLINK", driver.partition.base + "starts:" + "l" * 8)


async def test_a_caller_that_must_not_wait_is_told_at_once(proxy: Proxy, far: Store) -> None:
    driver = await PartitionDriver.open(far)
    proxy.mood = "away"

    for call in (far.without_retry.workers, lambda: driver.partition.without_retry.cancel(b"", ["a"])):
        before = proxy.lost
        with pytest.raises(ServerAway):
            await call()
        assert proxy.lost <= before + 1
    proxy.mood = "fair"


async def test_retrying_ends_after_its_time(
    proxy: Proxy, far: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "SERVER_RETRY_SECONDS", 0.3)
    await PartitionDriver.open(far)
    proxy.mood = "away"
    started = time.monotonic()

    with pytest.raises(ServerAway):
        await far.workers()

    assert 0.1 < time.monotonic() - started < 5
    assert proxy.lost > 2
    proxy.mood = "fair"


async def test_a_server_that_was_never_reached_is_given_up_sooner(
    proxy: Proxy, far: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_CONNECT_RETRY_SECONDS", 0.2)
    proxy.mood = "away"
    started = time.monotonic()

    with pytest.raises(ServerAway):
        await far.workers()

    assert time.monotonic() - started < 5
    proxy.mood = "fair"


async def test_a_verb_made_of_others_is_repeated_as_a_whole_within_one_limit(
    proxy: Proxy, far: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "SERVER_RETRY_SECONDS", 0.5)
    driver = await PartitionDriver.open(far)
    proxy.mood = "away"
    started = time.monotonic()

    with pytest.raises(ServerAway):
        await driver.partition.put([driver.job("a")])

    assert time.monotonic() - started < 5
    proxy.mood = "fair"


def test_every_verb_of_a_partition_says_whether_it_may_be_sent_twice() -> None:
    verbs = {name: verb for name, verb in vars(Partition).items() if inspect.iscoroutinefunction(verb)}

    sent_once = {name for name, verb in verbs.items() if not hasattr(verb, "__wrapped__")}

    assert sent_once == {"_words", "return_start_token"}
