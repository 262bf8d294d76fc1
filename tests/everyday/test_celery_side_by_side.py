"""From Celery: each canvas and call of a table, run by Celery's own worker and by qbull's. The results agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import celery
import celery.result
import celery.signals
import pytest
from blocks import close_apps  # noqa: F401 - a fixture
from celery.contrib.testing.worker import start_worker

import qbull
from qbull.compat import celery as shim
from qbull.compat.celery import result as shim_result
from qbull.embedded.server import EmbeddedServer
from qbull.store.store import Store

PATIENCE_SECONDS = 60

pytestmark = [
    pytest.mark.xdist_group("side by side with celery"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Celery's own, in its worker
]


class Odd(Exception):
    """An exception of the program, with several arguments."""


def declare(app: Any, package: Any, result: Any) -> SimpleNamespace:
    """The program: the same lines for both packages."""

    @app.task(name="add")
    def add(x, y=0, z=0):  # type: ignore[no-untyped-def]
        return x + y + z

    @app.task(name="same")
    def same(value):  # type: ignore[no-untyped-def]
        return value

    @app.task(name="total")
    def total(numbers):  # type: ignore[no-untyped-def]
        return sum(numbers)

    @app.task(name="fail")
    def fail(*args):  # type: ignore[no-untyped-def]
        raise Odd("no", 7)

    @app.task(name="missing")
    def missing(*args):  # type: ignore[no-untyped-def]
        return {}["name"]

    @app.task(name="everything")
    def everything(*args, **kwargs):  # type: ignore[no-untyped-def]
        return [list(args), kwargs]

    @app.task(name="again", bind=True, default_retry_delay=0, max_retries=2)
    def again(self):  # type: ignore[no-untyped-def]
        if self.request.retries < 2:
            raise self.retry()
        return self.request.retries

    @app.task(name="gives_up", bind=True, default_retry_delay=0, max_retries=1)
    def gives_up(self):  # type: ignore[no-untyped-def]
        raise self.retry(exc=Odd("at last"))

    @app.task(name="request", bind=True)
    def request(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        r = self.request
        return [list(r.args), r.kwargs, r.retries, r.is_eager, r.called_directly, r.task]

    @app.task(name="priority", bind=True)
    def priority(self, *args):  # type: ignore[no-untyped-def]
        return self.request.delivery_info["priority"]

    class Adding(package.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, args=None, kwargs=None, **options):  # type: ignore[no-untyped-def]
            return super().apply_async(args, {**(kwargs or {}), "z": 100}, **options)

    @app.task(name="tagged", base=Adding)
    def tagged(x=0, y=0, z=0):  # type: ignore[no-untyped-def]
        return x + y + z

    @app.task(name="starts_a_chain")
    def starts_a_chain():  # type: ignore[no-untyped-def]
        return (add.s(1, 1) | group(add.s(1), add.s(2))).apply_async()

    @app.task(name="shape")
    def shape(given):  # type: ignore[no-untyped-def]
        return str(signature(given))

    chain, group, chord, signature = package.chain, package.group, package.chord, package.signature
    return SimpleNamespace(result_from_tuple=result.result_from_tuple, **locals())


@celery.signals.setup_logging.connect  # type: ignore[untyped-decorator]
def keep_logging(**_: Any) -> None:
    """With a receiver, Celery does not replace the level and the handlers of the whole process."""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    server = EmbeddedServer.open(tmp_path_factory.mktemp("celery"))
    url = f"redis+socket://:{server.password}@{server.socket}?virtual_host=0"
    app = celery.Celery("theirs", broker=url, backend=url, set_as_current=True)
    made = declare(app, celery, celery.result)
    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR", shutdown_timeout=30):
        yield made
    # Results that are collected later need no server. Each thread has a backend of its own, the worker's too;
    # without this, one that is collected in the middle of another test keeps its loop for 20 seconds.
    consumer = app.backend.result_consumer
    type(consumer).cancel_for = lambda self, id: None
    consumer.stop()
    app.close()
    server.close()


@pytest.fixture
def ours(server_url: str, store: Store, closing: list[qbull.App]) -> Iterator[SimpleNamespace]:
    closing.append(app := shim.Celery("ours", broker=server_url, prefix="test"))
    made = declare(app, shim, shim_result)
    worker = app.worker()
    app.run_sync(worker.start())
    yield made
    app.run_sync(worker.stop())


Case = Callable[[Any], Any]

CASES: dict[str, Case] = {
    # Chains
    "a chain passes results on": lambda p: (p.add.s(2, 2) | p.add.s(4) | p.add.s(8)).delay(),
    "a chain of one task": lambda p: p.chain(p.add.s(2, 2)).delay(),
    "a chain in a chain": lambda p: p.chain(p.chain(p.add.s(1, 1), p.add.s(1)), p.add.s(10)).delay(),
    "a chain of a list": lambda p: p.chain([p.add.s(1, 1), p.add.s(1)])(),
    "a chain with an immutable task": lambda p: (p.add.s(1, 1) | p.add.si(5, 5)).delay(),
    "a chain with arguments of the caller": lambda p: (p.add.s(1) | p.add.s(1)).delay(10),
    "a chain with keyword arguments": lambda p: (p.add.s(1) | p.add.s(z=3)).apply_async((1,)),
    "a chain that ends with a group": lambda p: (p.add.s(1, 1) | p.group(p.add.s(1), p.add.s(2))).delay(),
    "a chain with a group between": lambda p: (
        p.add.s(1, 1) | p.group(p.add.s(1), p.add.s(2)) | p.total.s()
    ).delay(),
    "a chain with two groups": lambda p: (
        p.group(p.add.s(1, 1), p.add.s(2, 2)) | p.group(p.total.s(), p.same.s())
    ).delay(),
    "a group of one task in a chain": lambda p: (p.add.s(1, 1) | p.group(p.add.s(1)) | p.same.s()).delay(),
    # Groups
    "a group": lambda p: p.group(p.add.s(n, n) for n in range(5))(),
    "a group with arguments of the caller": lambda p: p.group(p.add.s(1), p.add.s(2)).delay(10),
    "a group in a group": lambda p: p.group(p.add.s(1, 1), p.group(p.add.s(2, 2), p.add.s(3, 3)))(),
    "a group of chains": lambda p: p.group(p.add.s(1, 1) | p.add.s(1), p.add.s(2, 2) | p.add.s(2))(),
    "a group of a chain that ends with a group": lambda p: p.group(
        p.add.s(1, 2) | p.group(p.add.s(1), p.add.s(2))
    )(),
    "a group of two such chains": lambda p: p.group(
        p.add.s(1, 2) | p.group(p.add.s(1), p.add.s(2)), p.add.s(7, 7) | p.group(p.add.s(1), p.add.s(2))
    )(),
    "an empty group": lambda p: p.group([])(),
    # Chords
    "a chord": lambda p: p.chord([p.add.s(n, n) for n in range(5)])(p.total.s()),
    "a chord of one task": lambda p: p.chord([p.add.s(1, 1)], p.same.s())(),
    "a chord with an empty header": lambda p: p.chord([], p.same.s())(),
    "a chord with a single task as its header": lambda p: p.chord(p.add.s(1, 1), p.same.s())(),
    "a chord with an immutable body": lambda p: p.chord([p.add.s(1, 1)], p.add.si(5, 5))(),
    "a chord whose body is a chain": lambda p: p.chord([p.add.s(1, 1)] * 2, p.total.s() | p.add.s(100))(),
    "a chord whose body is a group": lambda p: p.chord(
        [p.add.s(1, 1)] * 2, p.group(p.total.s(), p.same.s())
    )(),
    "a chord in the header of a chord": lambda p: p.chord(
        [p.chord([p.add.s(1, 1), p.add.s(2, 2)], p.total.s()), p.add.s(5, 5)], p.same.s()
    )(),
    "a chord of a chain that ends with a group": lambda p: p.chord(
        p.group(p.chain(p.same.s(42), p.group(p.same.s(), p.same.s()))), p.same.s()
    )(),
    "a chord of such a chain and a task": lambda p: p.chord(
        [p.add.s(2, 2) | p.group(p.add.s(1), p.add.s(2)), p.add.s(9, 9)], p.same.s()
    )(),
    "a chord after a chord": lambda p: (
        p.group(p.add.s(1, 1), p.add.s(2, 2)) | p.total.s() | p.group(p.add.s(1), p.add.s(2)) | p.same.s()
    ).delay(),
    # map, starmap, chunks
    "map": lambda p: p.total.map([[1, 2], [3, 4]]).delay(),
    "starmap": lambda p: p.add.starmap([(1, 1), (2, 2)]).delay(),
    "chunks": lambda p: p.add.chunks([(n, n) for n in range(5)], 2)(),
    "chunks as a group": lambda p: p.add.chunks([(n, n) for n in range(5)], 2).group()(),
    # Signatures
    "a signature by name": lambda p: p.signature("add", args=(2, 3)).delay(),
    "a signature that travelled": lambda p: p.signature(dict(p.add.s(2, 3))).delay(),
    "a canvas that travelled": lambda p: p.package.Signature.from_dict(
        dict(p.chain(p.add.s(1, 1), p.add.s(2)))
    ).delay(),
    "partial arguments": lambda p: p.everything.s(3, b=2).delay(1, 2, a=1),
    "a clone with arguments": lambda p: p.add.s(1).clone(args=(5,)).delay(),
    "arguments that are set": lambda p: _with_args(p.add.s(), [4, 4]).delay(),
    "a frozen signature": lambda p: _frozen(p.add.s(2, 2)),
    "a frozen chord": lambda p: _frozen(p.chord([p.add.s(2, 2)], p.same.s())),
    "a signature as an argument": lambda p: p.shape.delay(p.add.s(1, 2)),
    "an eager signature": lambda p: p.add.s(2, 2).apply(),
    "an eager chain": lambda p: (p.add.s(2, 2) | p.add.s(3)).apply(),
    "an eager group": lambda p: p.group(p.add.s(1, 1), p.add.s(2, 2)).apply(),
    "an eager chord": lambda p: p.chord([p.add.s(1, 1), p.add.s(2, 2)], p.total.s()).apply(),
    # An apply_async of the program's own
    "delay with an own apply_async": lambda p: p.tagged.delay(1, 2),
    "a signature with an own apply_async": lambda p: p.tagged.s(1, 2).delay(),
    "a chain with an own apply_async": lambda p: (p.tagged.s(1) | p.tagged.s(2)).delay(),
    "a group with an own apply_async": lambda p: p.group(p.tagged.s(1), p.tagged.s(2))(),
    "a chord with an own apply_async": lambda p: p.chord([p.tagged.s(1), p.tagged.s(2)])(p.total.s()),
    "callbacks with an own apply_async": lambda p: p.tagged.apply_async((1,), link=p.tagged.s(5)),
    # Errors
    "an error with two arguments": lambda p: p.fail.delay(),
    "an error of Python": lambda p: p.missing.delay(),
    "an error in a chain": lambda p: (p.add.s(1, 1) | p.fail.s() | p.add.s(1)).delay(),
    "an error at the start of a chain": lambda p: (p.fail.s() | p.add.s(1)).delay(),
    "an error in a group": lambda p: p.group(p.add.s(1, 1), p.fail.s())(),
    "an error in the body of a chord": lambda p: p.chord([p.add.s(1, 1)], p.fail.s())(),
    # Retries and the request
    "a task that retries": lambda p: p.again.delay(),
    "a task that gives up": lambda p: p.gives_up.delay(),
    "the request": lambda p: p.request.delay(1, 2),
    "the request of a chain": lambda p: (p.add.s(1, 1) | p.request.s(5)).delay(),
    "the request of an eager call": lambda p: p.request.apply((1,)),
    "priorities": lambda p: p.group(p.priority.s().set(priority=n) for n in (0, 3, 6, 9))(),
    "results that a task returns": lambda p: _rebuilt(p),
}


def _with_args(given: Any, args: list[Any]) -> Any:
    given.args = args
    return given


def _frozen(given: Any) -> Any:
    """The result that is known before the call."""
    before = given.freeze()
    after = given.apply_async()
    assert before.id == after.id
    return before


def _rebuilt(p: Any) -> Any:
    return p.result_from_tuple(p.starts_a_chain.delay().get(timeout=PATIENCE_SECONDS))


def outcome(make: Case, program: SimpleNamespace) -> Any:
    """The result, or the class and the arguments of the exception."""
    try:
        result = make(program)
        return result.get(timeout=PATIENCE_SECONDS)
    except (Odd, KeyError) as error:
        [kind] = [each for each in (Odd, KeyError) if isinstance(error, each)]
        return kind, error.args


@pytest.mark.parametrize("name", CASES)
def test_the_results_are_those_of_celery(name: str, theirs: SimpleNamespace, ours: SimpleNamespace) -> None:
    make = CASES[name]

    assert outcome(make, ours) == outcome(make, theirs)
