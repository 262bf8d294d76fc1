"""deploy/kubernetes: every object is what the API takes, and the settings in it fit together and with the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from objects import KINDS, ConfigMap, Container, Deployment, ScaledObject, Service, StatefulSet
from reading import AFTER_GRACE, DEPLOY, READ, documents, parsed

from needed_tools import needs_tool
from qbull.core.config_warnings import WorkerDeclaration, config_warnings
from qbull.core.sharing import ShareMember, Sharing, assign_partitions, make_sharing, static_partitions
from qbull.environment import read_environment

FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SECRETS = {
    "url": "redis://valkey:6379/0",
    "viewer-token": "a-token-of-some-length",
    "page-password": "a-password-of-some-length",
}
METRICS = ("qbull_queue_jobs{", "qbull_queue_oldest_waiting_seconds{")


@cache
def objects(path: Path) -> list[Any]:
    return [msgspec.convert(document, KINDS[document["kind"]]) for document in documents(path)]


def all_of(kind: type) -> list[Any]:
    return [found for path in FILES for found in objects(path) if isinstance(found, kind)]


def workloads() -> list[Any]:
    return all_of(StatefulSet) + all_of(Deployment)


def containers() -> Iterator[tuple[Any, Container]]:
    for workload in workloads():
        for container in workload.spec.template.spec.containers:
            yield workload, container


def environment(workload: Any, container: Container, number: int = 0) -> dict[str, str]:
    """What pod `number` of a workload sees."""
    [shared] = all_of(ConfigMap)
    found = dict(shared.data) if any(source.config_map_ref for source in container.env_from) else {}
    for variable in container.env:
        source = variable.value_from
        assert (variable.value is None) != (source is None), f"{variable.name}: a value or a source"
        if source is not None and source.field_ref is not None:
            found[variable.name] = f"{workload.metadata.name}-{number}"
        else:
            assert variable.value or (source is not None and source.secret_key_ref is not None)
            found[variable.name] = variable.value or SECRETS[source.secret_key_ref.key]
    return found


def sharing(workload: Any, container: Container, number: int = 0) -> tuple[Sharing, int]:
    """How a pod takes partitions, and how many processes it has: from its command and its environment together."""
    _, options = parsed(container.args)
    env = environment(workload, container, number)
    per_pod, count = env.get("PARTITIONS_PER_POD"), env.get("INSTANCE_COUNT")
    shared = make_sharing(
        options["sharing"] or env.get("QBULL_SHARING"),
        options["partitions_per_pod"] or (int(per_pod) if per_pod else None),
        options["instance_id"] or env.get("INSTANCE_ID"),
        options["instance_count"] or (int(count) if count else None),
    )
    return shared, options["processes"]


def everything() -> list[Any]:
    return [pytest.param(w, c, id=w.metadata.name) for w, c in containers()]


def workers() -> list[Any]:
    return [case for case in everything() if case.values[1].args[0] == "worker"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_object_is_what_the_api_takes(path: Path) -> None:
    assert objects(path)


@pytest.mark.parametrize("harm", ["spec.replica", "spec.template.spec.containers.0.enw", "metadata.Name"])
def test_a_wrong_field_would_be_found(harm: str) -> None:
    document = documents(DEPLOY / "kubernetes" / "auto.yaml")[0]
    *path, name = harm.split(".")
    there = document
    for part in path:
        there = there[int(part) if part.isdigit() else part]
    there[name] = 1

    with pytest.raises(msgspec.ValidationError, match=f"unknown field `{name}`"):
        msgspec.convert(document, Deployment)


@needs_tool(shutil.which("kubectl"), "kubectl is not installed")
@pytest.mark.parametrize("path", ["static.yaml", "auto.yaml", "leased.yaml", "serve.yaml"])
def test_kubectl_reads_the_same_in_it(path: str, tmp_path: Path) -> None:
    """Its own types drop what they do not know, and refuse what has another type."""
    [document] = [
        d for d in documents(DEPLOY / "kubernetes" / path) if d["kind"] in ("StatefulSet", "Deployment")
    ]
    file = tmp_path / "one.json"
    file.write_text(json.dumps(document))

    done = subprocess.run(
        ["kubectl", "set", "env", "--local", "--output", "json", "--filename", str(file), "EXTRA=1"],
        capture_output=True, text=True, timeout=60, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/usr/local/bin"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    understood = json.loads(done.stdout)
    assert missing(document, understood) == []


def missing(wanted: Any, there: Any, at: str = "") -> list[str]:
    """What is in the one and not in the other."""
    if isinstance(wanted, dict):
        return [
            fault
            for name, value in wanted.items()
            for fault in (
                [f"{at}.{name}"] if name not in there else missing(value, there[name], f"{at}.{name}")
            )
        ]
    if isinstance(wanted, list):
        return [fault for n, value in enumerate(wanted) for fault in missing(value, there[n], f"{at}.{n}")]
    return [] if wanted == there else [f"{at}: {wanted!r} became {there!r}"]


def test_labels_and_names_lead_to_each_other() -> None:
    services = {service.metadata.name: service for service in all_of(Service)}
    pods = [workload.spec.template.metadata.labels for workload in workloads()]

    for workload in workloads():
        chosen = workload.spec.selector.match_labels.items()
        assert chosen <= workload.spec.template.metadata.labels.items()
        assert sum(chosen <= labels.items() for labels in pods) == 1, "its pods would be another one's too"
    for budget in (
        document for path in FILES for document in documents(path) if "Disruption" in document["kind"]
    ):
        assert any(budget["spec"]["selector"]["matchLabels"].items() <= labels.items() for labels in pods)
    for service in services.values():
        assert any(service.spec.selector.items() <= labels.items() for labels in pods)
    for workload in all_of(StatefulSet):
        assert workload.spec.service_name in services


@pytest.mark.parametrize(("workload", "container"), everything())
def test_the_variables_are_those_that_qbull_reads(workload: Any, container: Container) -> None:
    env = environment(workload, container)

    assert set(env) <= READ
    read_environment(env)


def test_every_command_is_one_of_qbull_with_options_that_it_has() -> None:
    commands = [container.args for _, container in containers()]
    for _, container in containers():
        for probe in (container.readiness_probe, container.liveness_probe):
            if probe is not None and probe.exec is not None:
                assert probe.exec.command == ["qbull-alive", "--ready"]

    assert {parsed(command)[0] for command in commands} == {"worker", "serve"}


@pytest.mark.parametrize(("workload", "container"), workers())
def test_a_pod_has_time_to_stop(workload: Any, container: Container) -> None:
    _, options = parsed(container.args)

    assert workload.spec.template.spec.termination_grace_period_seconds >= options["grace"] + AFTER_GRACE


@pytest.mark.parametrize(("workload", "container"), workers())
def test_every_partition_is_read_and_nothing_is_wrong_with_the_settings(
    workload: Any, container: Container
) -> None:
    partitions = read_environment(environment(workload, container)).partitions
    assert partitions is not None
    pods = [sharing(workload, container, number) for number in range(workload.spec.replicas)]
    processes = [
        shared.of_process(process, many, f"pod-{number}")
        for number, (shared, many) in enumerate(pods)
        for process in range(many)
    ]

    assert {process.mode for process in processes} == {workload.metadata.name.removeprefix("qbull-")}
    assert config_warnings(partitions, "", seats(partitions, processes)) == []


def seats(partitions: int, processes: list[Sharing]) -> list[WorkerDeclaration]:
    """What these workers would say of themselves."""
    shares = assign_partitions(
        partitions, {f"w{n}": ShareMember(most=process.most) for n, process in enumerate(processes)}
    )
    found = []
    for n, s in enumerate(processes):
        share = (
            static_partitions(partitions, s.instance, s.instances, s.process, s.processes)
            if s.mode == "static"
            else shares[f"w{n}"]
        )
        static = (s.instance, s.instances) if s.mode == "static" else (None, None)
        found.append(WorkerDeclaration(f"w{n}", s.pod, s.mode, frozenset(share), s.most, *static))
    return found


def test_the_count_of_a_static_set_is_its_replicas() -> None:
    [workload] = all_of(StatefulSet)
    [container] = workload.spec.template.spec.containers

    assert environment(workload, container)["INSTANCE_COUNT"] == str(workload.spec.replicas)
    assert sharing(workload, container, 3)[0].instance == 3


@pytest.mark.parametrize("scaled", all_of(ScaledObject), ids=lambda scaled: scaled.spec.triggers[0].type)
def test_what_is_scaled_is_there_and_shares_by_itself(scaled: ScaledObject) -> None:
    [target] = [w for w in all_of(Deployment) if w.metadata.name == scaled.spec.scale_target_ref.name]
    [container] = target.spec.template.spec.containers
    partitions = read_environment(environment(target, container)).partitions

    assert sharing(target, container)[0].mode == "auto"
    assert 1 <= scaled.spec.min_replica_count <= target.spec.replicas <= scaled.spec.max_replica_count
    assert partitions is not None and scaled.spec.max_replica_count <= partitions


def test_the_backlog_is_asked_where_the_server_tells_it() -> None:
    serve = next(service for service in all_of(Service) if service.spec.ports)
    [port] = serve.spec.ports
    by_api, by_prometheus = (
        scaled.spec.triggers for scaled in sorted(all_of(ScaledObject), key=lambda s: s.spec.triggers[0].type)
    )

    host = f"{serve.metadata.name}.default"
    assert by_api[0].metadata["url"] == f"http://{host}:{port.port}/api/queues/messages/stats"
    [(workload, container)] = [(w, c) for w, c in containers() if c.args[0] == "serve"]
    assert host in read_environment(environment(workload, container)).access.hosts
    assert by_api[0].metadata["valueLocation"] == "waiting"
    assert [any(name in trigger.metadata["query"] for trigger in by_prometheus) for name in METRICS] == [
        True,
        True,
    ]


def test_no_pod_runs_as_root_or_writes_to_its_image() -> None:
    for workload, container in containers():
        assert workload.spec.template.spec.security_context.run_as_non_root
        assert container.security_context.read_only_root_filesystem
        mounts = {mount.name: mount.mount_path for mount in container.volume_mounts}
        assert mounts == {"tmp": "/tmp"}, "a worker has its board there"
        assert [volume.name for volume in workload.spec.template.spec.volumes] == ["tmp"]
