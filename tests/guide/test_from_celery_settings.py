"""From Celery: an app whose broker and other settings come from elsewhere than its constructor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from blocks import close_apps  # noqa: F401 - a fixture

import qbull
from qbull.compat.celery import Celery
from topology import COMMON, PASSWORD, Node, wait_for

ADDRESS_VARIABLES = ("QBULL_URL", "REDIS_URL", "CELERY_BROKER_URL", "QBULL_DURABILITY")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as it is installed for Celery: without an append-only file."""
    node = Node(tmp_path_factory.mktemp("broker"), COMMON)
    node.start()
    wait_for(node.answers)
    yield f"redis://:{PASSWORD}@{node.place}/0"
    node.kill()


@pytest.fixture(autouse=True)
def no_address_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ADDRESS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def from_a_module(app: Celery, broker: str) -> None:
    settings = sys.modules["shop_settings"] = ModuleType("shop_settings")
    settings.CELERY_BROKER_URL = broker  # type: ignore[attr-defined]
    app.config_from_object("shop_settings", namespace="CELERY")


def from_an_attribute(app: Celery, broker: str) -> None:
    app.conf.broker_url = broker


def from_an_update(app: Celery, broker: str) -> None:
    app.conf.update({"broker_url": broker, "timezone": "Europe/Berlin"})


@pytest.mark.parametrize("configure", [from_a_module, from_an_attribute, from_an_update])
def test_a_broker_from_the_settings_takes_jobs_without_an_append_only_file(
    broker: str, closing: list[qbull.App], configure: Callable[[Celery, str], None]
) -> None:
    closing.append(app := Celery("shop"))
    configure(app, broker)

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    result = add.delay(2, 3)

    assert (app.url, app.conf.broker_url) == (broker, broker)
    assert result.state == "PENDING"
    assert not Path(".qbull").exists()


def test_the_broker_of_the_environment_wins_over_the_settings_as_in_celery(
    broker: str, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", broker)
    closing.append(bare := Celery("shop"))
    closing.append(app := Celery("shop", broker="redis://127.0.0.1:1/0"))
    app.conf.broker_url = "redis://127.0.0.1:1/0"

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    assert add.delay(2, 3).state == "PENDING"
    assert bare.url == app.url == broker


def test_the_address_of_qbull_stands_before_the_broker_of_the_environment(
    broker: str, closing: list[qbull.App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "amqp://guest@localhost")
    monkeypatch.setenv("QBULL_URL", broker)
    closing.append(app := Celery("shop"))

    assert app.url == broker


def test_a_durability_that_was_asked_for_stays_with_the_broker_of_the_settings(broker: str) -> None:
    app = Celery("shop", durability="durable")
    app.conf.broker_url = broker

    assert app.durability == "durable"


def test_several_brokers_are_refused() -> None:
    with pytest.raises(qbull.ConfigError, match="give one address"):
        Celery("shop").conf.broker_url = "redis://one/0;redis://two/0"
