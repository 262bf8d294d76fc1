"""deploy/compose.yaml: every field is one that compose knows, and its services can work together."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
import redis
from msgspec import Meta
from reading import AFTER_GRACE, DEPLOY, READ, documents, parsed

from qbull.embedded.server import _find_server
from qbull.environment import read_environment
from qbull.store.connection.address import Address
from topology import free_port

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
    """As compose does it with VALKEY_PASSWORD=valkey-password-of-yours, and so on."""
    named = re.sub(r"\$\{(\w+):\?[^}]+\}", lambda found: password(found[1]), text)
    return named.replace("$$", "$")


def password(variable: str) -> str:
    return f"{variable.lower().replace('_', '-')}-of-yours"


def settings() -> dict[str, str]:
    """The settings that the command of the server has for it."""
    script = compose().services["valkey"].command[-1]
    lines = script.partition("<<SETTINGS\n")[2].removesuffix("SETTINGS\n").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_every_field_is_one_that_compose_knows() -> None:
    assert set(compose().services) == {"valkey", "worker", "serve"}


def test_the_server_keeps_what_it_has_acknowledged() -> None:
    options = settings()

    assert (options["appendonly"], options["appendfsync"]) == ("yes", "always")
    assert options["maxmemory-policy"] == "noeviction"
    assert [volume.partition(":") for volume in compose().services["valkey"].volumes] == [
        ("jobs", ":", "/data")
    ]


def test_the_workers_find_the_server() -> None:
    worker = compose().services["worker"]
    address = Address.parse(filled_in(worker.environment["QBULL_URL"]))

    assert address.kwargs["host"] in compose().services
    assert settings()["requirepass"] == "$$REDISCLI_AUTH"
    assert environment("valkey")["REDISCLI_AUTH"] == address.kwargs["password"]
    assert worker.depends_on["valkey"].condition == "service_healthy"


def test_no_password_is_an_argument_and_none_is_shared() -> None:
    services = compose().services
    arguments = [argument for service in services.values() for argument in service.command]

    assert [argument for argument in arguments if "PASSWORD" in argument] == []
    assert environment("serve")["QUEUES_UI_PASS"] == password("DASHBOARD_PASSWORD")
    assert password("DASHBOARD_PASSWORD") not in environment("serve")["QBULL_URL"]


def test_the_server_asks_for_the_password_and_its_arguments_do_not_show_it(tmp_path: Path) -> None:
    """The command runs here as it is, with a real server behind the entry point of the image."""
    port, secret = free_port(), password("VALKEY_PASSWORD")
    entry = tmp_path / "docker-entrypoint.sh"
    entry.write_text(f'#!/bin/sh\nshift\nexec {_find_server()} "$@" --port {port} --dir {tmp_path}\n')
    entry.chmod(0o700)
    command = [filled_in(argument) for argument in compose().services["valkey"].command]
    path = f"{tmp_path}:{os.environ['PATH']}"
    server = subprocess.Popen(command, env={"PATH": path, **environment("valkey")}, stdout=subprocess.DEVNULL)
    try:
        with closing(redis.Redis(port=port, password=secret)) as known:
            wait_until_up(known, server)
            kept = known.config_get("append*")
            shown = subprocess.run(
                ["ps", "-ww", "-o", "args=", "-p", str(server.pid)], capture_output=True, text=True
            )
        with closing(redis.Redis(port=port)) as unknown, pytest.raises(redis.AuthenticationError):
            unknown.ping()
    finally:
        server.terminate()
        server.wait(30)

    assert (kept["appendonly"], kept["appendfsync"]) == ("yes", "always")
    assert "valkey-server" in shown.stdout and secret not in shown.stdout
    assert server.returncode == 0, "the signal reaches the server, not a shell"


def wait_until_up(server: redis.Redis, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            server.ping()
        except redis.ConnectionError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"the server ended with {process.returncode}")


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
