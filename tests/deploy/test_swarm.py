"""deploy/swarm.yaml: Docker takes it for a stack, and its services are those of the compose file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import test_compose
import yaml
from reading import AFTER_GRACE, DEPLOY, READ, documents, parsed

FILE = DEPLOY / "swarm.yaml"
VALUES = {"QBULL_IMAGE": "registry/qbull", "VALKEY_PASSWORD": "v" * 20, "DASHBOARD_PASSWORD": "d" * 20}
LEFT_OUT = {"build", "depends_on", "restart", "ports", "name", "container_name"}
"""Docker refuses or ignores these in a stack, or they would open a port on every node."""
NEEDS_DOCKER = pytest.mark.skipif(shutil.which("docker") is None, reason="there is no docker here")


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = documents(FILE)[0]["services"]
    return found


def environment(name: str) -> dict[str, str]:
    return {name: test_compose.filled_in(value) for name, value in services()[name]["environment"].items()}


def stack_config(file: Path, **values: str) -> subprocess.CompletedProcess[str]:
    """What Docker reads in it. This needs no daemon."""
    command = ["docker", "stack", "config", "--compose-file", str(file)]
    return subprocess.run(command, env=os.environ | values, capture_output=True, text=True, timeout=60)


@NEEDS_DOCKER
def test_docker_reads_the_services_as_a_stack() -> None:
    done = stack_config(FILE, **VALUES)

    assert done.returncode == 0, done.stderr
    read = yaml.safe_load(done.stdout)["services"]
    assert set(read) == {"valkey", "worker", "serve"}
    assert read["worker"]["image"] == "registry/qbull"
    assert read["worker"]["deploy"]["resources"]["limits"] == {"memory": str(1024**3)}
    assert read["worker"]["environment"]["QBULL_URL"] == f"redis://:{'v' * 20}@valkey:6379/0"


@NEEDS_DOCKER
@pytest.mark.parametrize("missing", VALUES)
def test_a_value_that_is_missing_stops_it(missing: str) -> None:
    done = stack_config(FILE, **{name: value for name, value in VALUES.items() if name != missing})

    assert done.returncode != 0 and f"set {missing}" in done.stderr


@NEEDS_DOCKER
def test_docker_refuses_the_compose_file_and_fields_that_it_does_not_know(tmp_path: Path) -> None:
    wrong = tmp_path / "swarm.yaml"
    wrong.write_text(FILE.read_text().replace("parallelism: 1", "parallel: 1"))
    shutil.copytree(DEPLOY / "shop", tmp_path / "shop")

    assert "parallel" in stack_config(wrong, **VALUES).stderr
    assert stack_config(DEPLOY / "compose.yaml", **VALUES).returncode != 0


def test_its_services_are_those_of_the_compose_file() -> None:
    composed = test_compose.compose().services

    assert set(services()) == set(composed)
    for name, service in services().items():
        assert service["command"] == composed[name].command
        assert LEFT_OUT.isdisjoint(service)
        own = {"QBULL_ALLOWED_HOSTS"} if name == "serve" else set()
        text_logs = {"QBULL_LOG_FORMAT"} & set(composed[name].environment)
        assert set(service["environment"]) - own == set(composed[name].environment) - text_logs
        for variable in set(service["environment"]) - own:
            assert service["environment"][variable] == composed[name].environment[variable]
    assert services()["valkey"]["image"] == composed["valkey"].image


@pytest.mark.parametrize("name", ["worker", "serve"])
def test_a_service_is_replaced_without_a_gap_and_has_time_to_stop(name: str) -> None:
    service = services()[name]
    _, options = parsed(service["command"])

    assert set(service["environment"]) <= READ
    assert service["read_only"] and service["tmpfs"] == ["/tmp"]
    assert service["deploy"]["update_config"]["order"] == "start-first"
    if name == "worker":
        assert int(service["stop_grace_period"].removesuffix("s")) >= options["grace"] + AFTER_GRACE


def test_there_is_never_a_second_server_on_the_data() -> None:
    valkey = services()["valkey"]

    assert valkey["deploy"]["replicas"] == 1
    assert valkey["deploy"]["update_config"]["order"] == "stop-first"
    [constraint] = valkey["deploy"]["placement"]["constraints"]
    label, _, value = constraint.partition(" == ")
    assert f"--label-add {label.removeprefix('node.labels.')}={value}" in FILE.read_text()


def test_the_sample_is_where_the_worker_looks_for_it() -> None:
    [document] = documents(FILE)

    for name in ("worker", "serve"):
        [config] = services()[name]["configs"]
        assert re.fullmatch(r"/app/\w+\.py", config["target"])
        assert (DEPLOY / document["configs"][config["source"]]["file"]).is_file()
