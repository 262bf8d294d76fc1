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


def test_settings_without_a_counterpart_are_ignored_and_named_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Celery("shop")

    app.conf.update(
        {"DEBUG": True, "worker_prefetch_multiplier": 1, "broker_use_ssl": None, "task_acks_late": True},
        task_track_started=False,
        accept_content=("json",),
    )

    [line] = [record.getMessage() for record in caplog.records]
    assert "no effect here: DEBUG, task_track_started, worker_prefetch_multiplier;" in line
    assert (app.conf.DEBUG, app.conf.get("nowhere", 3)) == (True, 3)


@pytest.mark.parametrize(
    "setting",
    [
        {"task_acks_late": False},
        {"task_serializer": "pickle"},
        {"task_annotations": {"*": {"rate_limit": "1/s"}}},
        {"broker_use_ssl": {"ssl_cert_reqs": "none"}},
        {"broker_transport_options": {"global_keyprefix": "shop"}},
        {"result_backend": "db+sqlite:///results.sqlite"},
        {"result_backend": "django-db"},
    ],
)
def test_settings_whose_meaning_would_be_lost_are_refused(setting: dict[str, object]) -> None:
    [name] = setting

    with pytest.raises(qbull.ConfigError, match=rf"conf\({name}=…\): (?!is not supported)"):
        Celery("shop").conf.update(setting)


@pytest.mark.parametrize("first", ["broker_url", "result_backend"])
def test_a_result_backend_on_the_server_of_the_broker_is_accepted_and_another_is_not(first: str) -> None:
    same = {"broker_url": "redis://localhost/0", "result_backend": "redis://:secret@localhost:6379/1"}
    other = {"broker_url": "redis://localhost/0", "result_backend": "redis://results/1"}

    Celery("shop").conf.update(dict(sorted(same.items(), reverse=first == "result_backend")))
    with pytest.raises(qbull.ConfigError, match="stored with the jobs, on the server of the broker"):
        Celery("shop").conf.update(dict(sorted(other.items(), reverse=first == "result_backend")))


def test_names_from_before_celery_4_are_read(broker: str) -> None:
    app = Celery("shop")
    app.conf.update(BROKER_URL=broker, CELERY_TIMEZONE="Europe/Berlin", CELERYD_TASK_TIME_LIMIT=9)

    assert (app.url, app.conf.zone, app.conf.task_time_limit) == (broker, "Europe/Berlin", 9)
