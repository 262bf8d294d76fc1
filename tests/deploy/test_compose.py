"""deploy/compose.yaml: every field is one that compose knows, and its services can work together."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta
from reading import AFTER_GRACE, DEPLOY, READ, documents, parsed

from qbull.config import read_environment
from qbull.store.connection.address import Address

Duration = Annotated[str, Meta(pattern=r"^\d+(ms|s|m)$")]


class Field(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class Healthcheck(Field):
    test: list[str]
    interval: Duration
    timeout: Duration
    retries: Annotated[int, Meta(ge=1)]


class Build(Field):
    context: str
    dockerfile: str


class Condition(Field):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Deploy(Field):
    replicas: Annotated[int, Meta(ge=1)]


class Service(Field):
    image: str
    command: list[str]
    environment: dict[str, str]
    volumes: list[str]
    stop_grace_period: Duration
    restart: Literal["no", "always", "on-failure", "unless-stopped"]
    build: Build | None = None
    healthcheck: Healthcheck | None = None
    depends_on: dict[str, Condition] = {}
    deploy: Deploy | None = None
    read_only: bool = False
    tmpfs: list[str] = []
    ports: list[Annotated[str, Meta(pattern=r"^127\.0\.0\.1:\d+:\d+$")]] = []


class Compose(Field):
    name: str
    services: dict[str, Service]
    volumes: dict[str, None]


def compose() -> Compose:
    [document] = documents(DEPLOY / "compose.yaml")
    return msgspec.convert(document, Compose)


def filled_in(text: str) -> str:
    """As compose does it with QBULL_PASSWORD=a-secret-of-yours."""
    return re.sub(r"\$\{QBULL_PASSWORD:\?[^}]+\}", "a-secret-of-yours", text)


def test_every_field_is_one_that_compose_knows() -> None:
    assert set(compose().services) == {"valkey", "worker", "serve"}


def test_the_server_keeps_what_it_has_acknowledged() -> None:
    command = compose().services["valkey"].command
    options = dict(zip(command[1::2], command[2::2], strict=True))

    assert (options["--appendonly"], options["--appendfsync"]) == ("yes", "always")
    assert options["--maxmemory-policy"] == "noeviction"
    assert [volume.partition(":") for volume in compose().services["valkey"].volumes] == [
        ("jobs", ":", "/data")
    ]


def test_the_workers_find_the_server() -> None:
    worker = compose().services["worker"]
    address = Address.parse(filled_in(worker.environment["QBULL_URL"]))

    assert address.kwargs["host"] in compose().services
    assert filled_in(compose().services["valkey"].command[-1]) == address.kwargs["password"]
    assert worker.depends_on["valkey"].condition == "service_healthy"


@pytest.mark.parametrize("name", ["worker", "serve"])
def test_the_variables_and_the_command_are_those_of_qbull(name: str) -> None:
    service = compose().services[name]
    command, options = parsed(service.command)

    assert command == name
    assert set(service.environment) <= READ
    assert read_environment(environment(name)).partitions == 16
    if command == "worker":
        assert int(service.stop_grace_period.removesuffix("s")) >= options["grace"] + AFTER_GRACE
    else:
        assert service.ports == [f"127.0.0.1:{options['port']}:{options['port']}"]


def environment(name: str) -> dict[str, str]:
    return {variable: filled_in(value) for variable, value in compose().services[name].environment.items()}


def test_what_it_builds_and_mounts_is_there() -> None:
    worker = compose().services["worker"]
    assert worker.build is not None

    assert (DEPLOY / worker.build.context / worker.build.dockerfile).resolve() == DEPLOY / "Dockerfile"
    for volume in worker.volumes:
        source, target, mode = volume.split(":")
        assert (DEPLOY / source).is_dir() and (target, mode) == ("/app", "ro")
    assert worker.read_only and worker.tmpfs == ["/tmp"], "a worker has its board there"
