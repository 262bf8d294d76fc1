"""Metrics: what Prometheus reads is true, has bounded labels, and is what the dashboards and alerts ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from web import ACCESS, VIEWER, Person, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from qbull.api.metrics import MAX_TASK_LABELS, METRICS, bounded
from qbull.core.histograms import Histogram
from qbull.observe.exposition import Metric, MetricSamples
from qbull.store.read import histograms
from qbull.store.store import Store

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
Read = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(person: Person) -> Read:
    """All samples by name and labels, as Prometheus' own parser reads them."""
    answer = await person.client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith(
        "text/plain; version=0.0.4"
    )
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(read: Read, name: str, **labels: str) -> float:
    return read[name, frozenset(labels.items())]


class OrdersApp:
    def __init__(self, app: qbull.App) -> None:
        self.orders = app.queue("orders", partitions=3, retry=qbull.Retry(delays=(0,)))

        @self.orders.task
        async def ship(customer: str) -> None: ...

        @self.orders.task
        async def fail() -> None:
            raise ValueError

        self.ship, self.fail = ship, fail


@pytest.fixture(name="orders_app")
def make_orders_app(app: qbull.App) -> OrdersApp:
    return OrdersApp(app)


async def test_counts_totals_and_histograms_are_true(
    app: qbull.App, orders_app: OrdersApp, viewer: Person
) -> None:
    await orders_app.ship.enqueue_many([{"customer": f"c{n}"} for n in range(5)])
    await orders_app.fail.enqueue()
    async with app.worker() as worker:
        await worker.drain()
    await orders_app.ship.enqueue("later")
    await orders_app.ship.options(delay=600).enqueue("much later")

    read = await scraped(viewer)

    assert value(read, "qbull_up") == 1
    for state, count in {
        "waiting": 1,
        "delayed": 1,
        "active": 0,
        "completed": 5,
        "failed": 1,
        "cancelled": 0,
    }.items():
        assert value(read, "qbull_queue_jobs", queue="orders", state=state) == count
    for word, count in {"enqueued": 8, "started": 7, "completed": 5, "failed": 1, "retried": 1}.items():
        assert value(read, f"qbull_jobs_{word}_total", queue="orders") == count
    assert value(read, "qbull_job_duration_seconds_count", queue="orders", task="ship") == 5
    assert value(read, "qbull_job_duration_seconds_bucket", queue="orders", task="fail", le="+Inf") == 2
    assert value(read, "qbull_job_wait_seconds_count", queue="orders") == 7
    assert value(read, "qbull_queue_oldest_waiting_seconds", queue="orders") >= 0
    assert (
        value(read, "qbull_queue_partitions", queue="orders"),
        value(read, "qbull_queue_partitions_owned", queue="orders"),
    ) == (3, 0)


async def test_workers_and_what_they_read_are_counted(
    app: qbull.App, orders_app: OrdersApp, viewer: Person
) -> None:
    await orders_app.orders.pause()
    async with app.worker(concurrency=7):
        read = await scraped(viewer)

    assert value(read, "qbull_workers") == 1
    assert (
        value(read, "qbull_queue_workers", queue="orders"),
        value(read, "qbull_queue_slots", queue="orders"),
    ) == (1, 7)
    assert value(read, "qbull_queue_partitions_owned", queue="orders") == 3
    assert value(read, "qbull_queue_paused", queue="orders") == 1


async def test_a_schedule_that_nobody_fires_is_late(
    app: qbull.App, orders_app: OrdersApp, viewer: Person, store: Store
) -> None:
    await app.schedules.upsert("often", "orders/fail", every=1)
    place = next(iter((await app.schedules._stored.locations()).values()))
    seconds, _ = await store.server.call("TIME")
    name = store.names.partition(*place) + "schedules"
    await store.server.call("ZADD", name, (int(seconds) - 90) * 1000, "often")

    assert 89 < value(await scraped(viewer), "qbull_schedule_lag_seconds", queue="orders") < 120


async def test_what_jobs_say_becomes_no_label(
    app: qbull.App, orders_app: OrdersApp, viewer: Person, admin: Person
) -> None:
    before = len(await scraped(viewer))
    for n in range(50):
        await orders_app.ship.options(key=f"key-{n}", id=f"id-{n}").enqueue(f"customer-{n}")
        await viewer.client.get(f"/api/queues/nothing-{n}/stats")
        await viewer.client.get(f"/nothing/{n}")
        await admin.client.post("/api/queues/orders/jobs", json={"task": f"task-{n}"})

    async with opened(app, ACCESS) as other:
        after = await scraped(await other.person(VIEWER))

    assert len(after) <= before + 3
    assert not any(re.search(r"key-|id-|customer-|nothing-|task-", str(sample)) for sample in after)


async def test_a_server_that_is_away_is_said(
    app: qbull.App, orders_app: OrdersApp, viewer: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> Any:
        raise qbull.ServerAway("gone")

    monkeypatch.setattr(histograms, "read", away)

    read = await scraped(viewer)

    assert value(read, "qbull_up") == 0
    assert not any(name.startswith("qbull_queue") for name, _ in read), "half of it would look like all of it"


async def test_metrics_need_a_token_unless_they_are_made_public(app: qbull.App, nobody: Person) -> None:
    await nobody.refused(401, "GET", "/metrics")
    async with opened(app, qbull.Access(public_metrics=True)) as web:
        assert value(await scraped(await web.person()), "qbull_up") == 1


async def test_whatever_is_in_a_label_the_text_stays_readable() -> None:
    metric = Metric("m", "gauge", "Something.", ("a",))
    histogram = Metric("h", "histogram", "Something.", ("a",))
    samples = MetricSamples()
    samples.add(metric, 1.5, 'x"y\\z\nw')
    samples.add_histogram(histogram, Histogram({9: 3, 40: 1, 64: 5}), "b")

    families = {family.name: family for family in text_string_to_metric_families(samples.text())}

    assert families["m"].samples[0].labels == {"a": 'x"y\\z\nw'}
    counts = [sample.value for sample in families["h"].samples if sample.name == "h_bucket"]
    assert counts == sorted(counts) and counts[-1] == 4


def test_more_tasks_than_there_are_labels_are_counted_together() -> None:
    many = {f"task-{n}": Histogram({9: n + 1}) for n in range(MAX_TASK_LABELS + 3)}

    shown = bounded(many)

    assert len(shown) == MAX_TASK_LABELS + 1
    assert shown["(others)"].count == 1 + 2 + 3, "those that ran least"


# What deploy/grafana and deploy/kubernetes ask for is there.

NAMES = {metric.name: metric for metric in METRICS}


def expressions() -> Iterator[str]:
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    for group in yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    for scaled in yaml.safe_load_all((GRAFANA.parent / "kubernetes" / "keda-prometheus.yaml").read_text()):
        for trigger in scaled["spec"].get("triggers", ()):
            yield trigger["metadata"]["query"]


def metric_of(name: str) -> Metric | None:
    for ending in ("", "_bucket", "_sum", "_count"):
        found = NAMES.get(name.removesuffix(ending) if ending else name)
        if found is not None and (not ending or found.kind == "histogram"):
            return found
    return None


@pytest.mark.parametrize("expression", list(expressions()))
def test_the_dashboard_and_the_alerts_ask_for_metrics_that_are_there(expression: str) -> None:
    asked = re.findall(r"(qbull_\w+)(?:\{([^}]*)\})?", expression)

    assert asked
    for name, labels in asked:
        metric = metric_of(name)
        assert metric is not None, name
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels))
        assert used <= {*metric.labels, "le"}, (name, used)
        if "rate(" in expression or "increase(" in expression:
            rated = re.search(rf"(?:rate|increase)\({name}", expression)
            assert rated is None or metric.kind in ("counter", "histogram"), name


def test_counters_end_with_total_and_nothing_else_does() -> None:
    assert [m.name for m in METRICS if m.name.endswith("_total") != (m.kind == "counter")] == []
    assert len(NAMES) == len(METRICS)


def test_every_panel_and_alert_is_complete() -> None:
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    rules = [
        rule
        for group in yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]

    assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel["targets"] for panel in dashboard["panels"])
    assert all(rule["annotations"]["summary"] and rule["annotations"]["description"] for rule in rules)
    assert {rule["labels"]["severity"] for rule in rules} <= {"critical", "warning", "info"}


def test_prometheus_finds_the_server_and_the_rules() -> None:
    config = yaml.safe_load((GRAFANA / "prometheus.yaml").read_text())

    [scrape] = config["scrape_configs"]
    assert scrape["metrics_path"] == "/metrics" and scrape["authorization"]["type"] == "Bearer"
    assert config["rule_files"] == ["alerts.yaml"] and scrape["static_configs"][0]["targets"] == [
        "qbull-serve:3050"
    ]
