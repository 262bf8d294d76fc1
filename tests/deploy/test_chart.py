"""deploy/helm/qbull: rendered by the template engine of Helm, and every object fits the schemas of Kubernetes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import msgspec
import pytest
import yaml
from objects import KINDS
from reading import DEPLOY, READ, Strict, documents, parsed

import qbull
from manifests.render import CHART, CannotRender, can_render, plain_files, render
from needed_tools import needs_tool
from qbull.environment import read_environment

pytestmark = [
    needs_tool(can_render(), "neither Helm nor Go with Sprig is installed"),
    pytest.mark.xdist_group("chart"),
]
OLDEST, NEWEST = "1.25", "1.37"
CUSTOM = {"ScaledObject", "TriggerAuthentication", "ServiceMonitor", "PrometheusRule"}
SHOP: dict[str, Any] = {"image": {"repository": "shop"}, "app": "shop:app", "secret": {"existing": "shop"}}
EVERYTHING = SHOP | {
    "image": {"repository": "shop", "tag": "1", "pullSecrets": ["registry"]},
    "secret": {"url": "redis://valkey:6379", "viewerToken": "t" * 20, "pagePassword": "p" * 12},
    "workers": {
        "mail": {
            "queues": ["email", "sms"],
            "env": {"QBULL_LOG_LEVEL": "DEBUG"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "podAnnotations": {"team": "mail"},
            "autoscaling": {"enabled": True, "queue": "email"},
        },
        "ordered": {"sharing": "static", "replicas": 4},
        "leased": {"sharing": "leased", "replicas": 5, "partitionsPerPod": 4},
    },
    "serve": {
        "hosts": ["jobs.internal"],
        "ingress": {"enabled": True, "className": "nginx", "host": "jobs.example", "tlsSecret": "jobs-tls"},
    },
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "monitoring": {"serviceMonitor": True, "alerts": True, "dashboard": True, "labels": {"release": "prom"}},
}

NODE = Path(__file__).parents[1] / "node"
NEEDS_OPERATORS = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules" / "@kubernetes-models").is_dir(),
    reason="Node is not installed, or `make test` has not installed tests/node",
)
Render = Callable[[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture
def rendered(tmp_path: Path) -> Render:
    """The objects of a release called "shop" in the namespace "web", with these values."""

    def render_values(values: dict[str, Any]) -> list[dict[str, Any]]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        texts = render([file], "shop", "web").values()
        return [document for text in texts for document in yaml.load_all(text, Strict) if document]

    return render_values


def named(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in objects if found["kind"] == kind}


def test_the_plain_files_are_rendered_from_the_chart() -> None:
    for name, text in plain_files().items():
        assert (DEPLOY / "kubernetes" / name).read_text() == text, f"{name} is old: run make manifests"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_fits_the_schemas_of_kubernetes(rendered: Render, version: str) -> None:
    objects = rendered(EVERYTHING)

    assert {found["kind"] for found in objects} == CUSTOM | {
        "ConfigMap", "Secret", "Deployment", "StatefulSet", "Service", "Ingress", "PodDisruptionBudget", "NetworkPolicy",
    }  # fmt: skip
    for found in objects:
        if found["kind"] not in CUSTOM:
            kubernetes_validate.validate(found, version, strict=True)


def test_the_newest_version_is_the_newest_that_has_schemas() -> None:
    assert kubernetes_validate.latest_version().rpartition(".")[0] == NEWEST


BY_PROMETHEUS = {"autoscaling": {"enabled": True, "queue": "email", "source": "prometheus"}}


@NEEDS_OPERATORS
def test_every_object_of_an_operator_fits_its_definition(rendered: Render) -> None:
    objects = rendered(EVERYTHING) + rendered(SHOP | {"workers": {"mail": BY_PROMETHEUS}})
    custom = [found for found in objects if found["kind"] in CUSTOM]

    assert {found["kind"] for found in custom} == CUSTOM
    assert complaints(custom) == [None] * len(custom)
    for found in custom:
        msgspec.convert(found, KINDS[found["kind"]])


@NEEDS_OPERATORS
@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    [
        ("ScaledObject", ["spec", "minReplicaCount"], "one"),
        ("ScaledObject", ["spec", "triggers", 0, "metadata"], None),
        ("TriggerAuthentication", ["spec", "secretTargetRef", 0, "parameter"], None),
        ("ServiceMonitor", ["spec", "endpoints", 0, "interval"], "often"),
        ("ServiceMonitor", ["spec", "selector"], None),
        ("PrometheusRule", ["spec", "groups", 0, "name"], None),
        ("PrometheusRule", ["spec", "groups", 0, "rules", 0, "for"], "soon"),
    ],
)
def test_a_wrong_object_of_an_operator_does_not_fit(
    rendered: Render, kind: str, path: list[Any], wrong: Any
) -> None:
    [broken] = [found for found in rendered(EVERYTHING) if found["kind"] == kind]
    at = broken
    for name in path[:-1]:
        at = at[name]
    if wrong is None:
        del at[path[-1]]
    else:
        at[path[-1]] = wrong

    [complaint] = complaints([broken])

    assert complaint is not None and str(path[-1]) in complaint


@pytest.mark.parametrize("kind", sorted(CUSTOM))
def test_a_field_that_an_operator_does_not_know_is_refused(rendered: Render, kind: str) -> None:
    found = next(found for found in rendered(EVERYTHING) if found["kind"] == kind)
    found["spec"]["unknownField"] = 1

    with pytest.raises(msgspec.ValidationError, match="unknownField"):
        msgspec.convert(found, KINDS[kind])


def complaints(objects: list[dict[str, Any]]) -> list[str | None]:
    """What the validators made from the definitions of KEDA and of the Prometheus operator say about each object."""
    done = subprocess.run(
        ["node", "validate.mjs"],
        cwd=NODE,
        input=json.dumps(objects),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: list[str | None] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("harm", ["replica", "minReadySecond"])
def test_a_wrong_field_does_not_fit(rendered: Render, harm: str) -> None:
    deployment = named(rendered(SHOP), "Deployment")["shop-qbull-default"]
    deployment["spec"][harm] = 1

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)


def test_a_few_values_are_enough(rendered: Render) -> None:
    objects = rendered(SHOP)

    assert sorted(named(objects, "Deployment")) == ["shop-qbull-default", "shop-qbull-serve"]
    assert not named(objects, "Secret"), "an existing one is named"
    assert not {found["kind"] for found in objects} & CUSTOM, "nothing that needs an operator"


def test_every_command_and_variable_is_one_of_qbull(rendered: Render) -> None:
    workloads = [found for found in rendered(EVERYTHING) if found["kind"] in ("Deployment", "StatefulSet")]
    containers = [one for w in workloads for one in w["spec"]["template"]["spec"]["containers"]]

    assert len(containers) == 5
    for container in containers:
        parsed(container["args"])
        assert {variable["name"] for variable in container["env"]} <= READ
    by_name = {w["metadata"]["name"]: w for w in workloads}
    [mail] = by_name["shop-qbull-mail"]["spec"]["template"]["spec"]["containers"]
    assert parsed(mail["args"])[1]["queues"] == "email,sms"


def test_names_lead_to_each_other(rendered: Render) -> None:
    objects = rendered(EVERYTHING)
    secret = next(iter(named(objects, "Secret")))
    settings = "shop-qbull"

    text = yaml.safe_dump_all(objects)
    asked = {line.split()[1] for line in text.splitlines() if line.strip().startswith("secretName:")}
    assert asked == {"jobs-tls"}
    for workload in [*named(objects, "Deployment").values(), *named(objects, "StatefulSet").values()]:
        [container] = workload["spec"]["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"configMapRef": {"name": settings}}]
        references = [v["valueFrom"] for v in container["env"] if "secretKeyRef" in v.get("valueFrom", {})]
        assert {reference["secretKeyRef"]["name"] for reference in references} == {secret}
        assert workload["spec"]["selector"]["matchLabels"].items() <= (
            workload["spec"]["template"]["metadata"]["labels"].items()
        )
    scaled = named(objects, "ScaledObject")["shop-qbull-mail"]["spec"]
    assert scaled["scaleTargetRef"]["name"] in named(objects, "Deployment")
    assert scaled["triggers"][0]["metadata"]["url"].startswith(
        "http://shop-qbull-serve.web:3050/api/queues/email/"
    )
    assert "shop-qbull-ordered" in named(objects, "Service")


@pytest.mark.parametrize(
    ("group", "seconds"), [({}, "60"), ({"takeOver": 90}, "90"), ({"takeOver": 0}, None)]
)
def test_static_pods_take_over_from_one_that_is_gone(
    rendered: Render, group: dict[str, Any], seconds: str | None
) -> None:
    workers = {"ordered": {"sharing": "static"} | group, "even": group}
    objects = rendered(SHOP | {"workers": workers})
    [static] = named(objects, "StatefulSet").values()
    even = named(objects, "Deployment")["shop-qbull-even"]

    def take_over(workload: dict[str, Any]) -> str | None:
        [container] = workload["spec"]["template"]["spec"]["containers"]
        return {one["name"]: one.get("value") for one in container["env"]}.get("QBULL_TAKE_OVER")

    assert (take_over(static), take_over(even)) == (seconds, None)
    if seconds:
        pod = {"INSTANCE_ID": "ordered-0", "INSTANCE_COUNT": "2", "QBULL_TAKE_OVER": seconds}
        assert read_environment(pod).sharing.take_over == int(seconds)


def test_every_workload_has_a_budget_for_disruptions(rendered: Render) -> None:
    objects = rendered(EVERYTHING | {"serve": {"replicas": 3, "maxUnavailable": "34%"}})
    budgets = {name: budget["spec"] for name, budget in named(objects, "PodDisruptionBudget").items()}

    assert set(budgets) == {*named(objects, "Deployment"), *named(objects, "StatefulSet")}
    assert budgets["shop-qbull-serve"]["maxUnavailable"] == "34%"
    serve = named(objects, "Deployment")["shop-qbull-serve"]["spec"]["template"]["metadata"]["labels"]
    assert budgets["shop-qbull-serve"]["selector"]["matchLabels"].items() <= serve.items()


def test_the_server_knows_the_names_under_which_it_is_asked(rendered: Render) -> None:
    serve = named(rendered(EVERYTHING), "Deployment")["shop-qbull-serve"]
    [container] = serve["spec"]["template"]["spec"]["containers"]
    [hosts] = [
        variable["value"] for variable in container["env"] if variable["name"] == "QBULL_ALLOWED_HOSTS"
    ]

    assert hosts == "shop-qbull-serve,shop-qbull-serve.web,jobs.internal,jobs.example"


def test_alerts_and_dashboard_are_those_of_the_repository(rendered: Render) -> None:
    objects = rendered(EVERYTHING)

    rule = named(objects, "PrometheusRule")["shop-qbull"]
    assert rule["spec"] == documents(DEPLOY / "grafana" / "alerts.yaml")[0]
    dashboard = named(objects, "ConfigMap")["shop-qbull-dashboard"]["data"]["qbull.json"]
    assert msgspec.json.decode(dashboard) == msgspec.json.decode(
        (DEPLOY / "grafana" / "dashboard.json").read_bytes()
    )


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"app": "shop:app"}, "image.repository: the image of your application"),
        (SHOP | {"app": ""}, "app: MODULE:APP of your application"),
        (SHOP | {"secret": {"existing": ""}}, "secret.url: the address of Redis or Valkey"),
        (SHOP | {"workers": {"a": {"sharing": "even"}}}, 'workers.a.sharing is "even"'),
        (SHOP | {"workers": {"a": {"sharing": "leased", "partitionsPerPod": 2}}}, "some would not be read"),
        (
            SHOP | {"workers": {"a": {"sharing": "static", "autoscaling": {"enabled": True, "queue": "q"}}}},
            "only workers with sharing: auto",
        ),
        (
            SHOP | {"partitions": 8, "workers": {"a": {"autoscaling": {"enabled": True, "queue": "q"}}}},
            "is above partitions (8)",
        ),
        (SHOP | {"workers": {"a": {"autoscaling": {"enabled": True}}}}, "the queue whose backlog counts"),
    ],
)
def test_values_that_would_not_work_are_refused_with_the_reason(
    rendered: Render, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(CannotRender) as refused:
        rendered(values)

    assert reason in str(refused.value)


def test_the_schema_of_the_values_accepts_what_works_and_refuses_typing_errors() -> None:
    schema = msgspec.json.decode((CHART / "values.schema.json").read_bytes())
    check = jsonschema.Draft7Validator(schema)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    assert list(check.iter_errors(defaults)) == []
    assert list(check.iter_errors(EVERYTHING)) == []
    assert list(check.iter_errors(documents(DEPLOY / "helm" / "shop.yaml")[0])) == []
    for wrong in ({"worker": {}}, {"workers": {"a": {"replica": 2}}}, {"serve": {"port": "http"}}):
        assert list(check.iter_errors(wrong))


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == qbull.__version__
