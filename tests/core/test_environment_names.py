"""Every setting of the environment has a QBULL_ name, which wins over names that other programs may use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import qbull.environment
from qbull.environment import Environment, password_variable, read_environment
from qbull.errors import ConfigError

SLACK = "https://hooks.slack.com/services/"
FOREIGN = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
"""Variables that systemd sets."""


@pytest.mark.parametrize(
    ("own", "others", "value", "other", "read"),
    [
        ("QBULL_URL", ["REDIS_URL"], "redis://own", "redis://other", lambda env: env.url),
        ("QBULL_PREFIX", ["REDIS_PREFIX"], "own", "other", lambda env: env.prefix),
        ("QBULL_PARTITIONS", ["TOTAL_PARTITIONS", "PARTITIONS"], "3", "5", lambda env: env.partitions),
        ("QBULL_MIN_IDLE_TIME_MS", ["MIN_IDLE_TIME_MS"], "700", "900", lambda env: int(env.min_idle * 1000)),
        ("QBULL_TIMEZONE", ["TZ"], "Europe/Berlin", "Asia/Tokyo", lambda env: env.timezone),
        (
            "QBULL_PASSWORD",
            ["QUEUES_UI_PASS", "ADMIN_PASSWORD"],
            "own",
            "other",
            lambda env: env.access.password,
        ),
        (
            "QBULL_SLACK_WEBHOOK_URL",
            ["SLACK_WEBHOOK_URL"],
            SLACK + "own",
            SLACK + "other",
            lambda env: env.alerts.slack,
        ),
        (
            "QBULL_DATABASE_URL",
            ["DATABASE_URL"],
            "postgresql://own/a",
            "postgresql://other/b",
            lambda env: env.database,
        ),
        ("QBULL_PARTITIONS_PER_POD", ["PARTITIONS_PER_POD"], "3", "5", lambda env: env.sharing.most),
    ],
)
def test_the_own_name_wins_and_an_empty_one_counts_as_not_set(
    own: str, others: list[str], value: str, other: str, read: Any
) -> None:
    def seen(**environ: str) -> str:
        return str(read(read_environment(environ)))

    for name in others:
        assert seen(**{own: value, name: other}) == value
        assert seen(**{name: other}) == other
        assert seen(**{own: "", name: other}) == other


def test_instances_have_own_names_too() -> None:
    both = {"INSTANCE_ID": "3", "INSTANCE_COUNT": "9"}

    sharing = read_environment({"QBULL_INSTANCE_ID": "1", "QBULL_INSTANCE_COUNT": "2", **both}).sharing

    assert (sharing.instance, sharing.instances) == (1, 2)


def test_every_variable_that_is_read_has_an_own_name() -> None:
    source = Path(qbull.environment.__file__).read_text()
    read = set(re.findall(r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|PARTITIONS|TZ)"', source)) - FOREIGN
    own = {name for name in read if name.startswith("QBULL_")}
    twins = {
        "REDIS_URL": "QBULL_URL",
        "REDIS_PREFIX": "QBULL_PREFIX",
        "TOTAL_PARTITIONS": "QBULL_PARTITIONS",
        "TZ": "QBULL_TIMEZONE",
        "QUEUES_UI_PASS": "QBULL_PASSWORD",
        "ADMIN_PASSWORD": "QBULL_PASSWORD",
    }

    assert {name for name in read - own if twins.get(name, f"QBULL_{name}") not in own} == set()


def test_no_other_module_reads_a_setting_of_its_own() -> None:
    """Variables of other programs keep their names: Celery's broker (QBULL_URL wins), Django, Python, POSIX."""
    package = Path(qbull.environment.__file__).parent
    reads = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\(|envvar=)\s*["'](\w+)["']""")
    read = {
        name
        for path in [*package.rglob("*.py"), package.parent / "qbull_alive.py"]
        for name in reads.findall(path.read_text())
    }

    foreign = {name for name in read if not name.startswith("QBULL_")}
    assert foreign == {"CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE", "PYTHONBREAKPOINT", "TMPDIR"}


def test_names_of_others_are_reported_if_they_are_used() -> None:
    def borrowed(**environ: str) -> tuple[str | None, str | None]:
        env: Environment = read_environment(environ)
        return env.borrowed_password, env.borrowed_slack

    assert borrowed(ADMIN_PASSWORD="x", SLACK_WEBHOOK_URL=SLACK) == ("ADMIN_PASSWORD", "SLACK_WEBHOOK_URL")
    assert borrowed(ADMIN_PASSWORD="x", QUEUES_UI_PASS="y") == (None, None)
    assert borrowed(
        ADMIN_PASSWORD="x",
        QBULL_PASSWORD="y",
        SLACK_WEBHOOK_URL=SLACK,
        QBULL_SLACK_WEBHOOK_URL=SLACK,
    ) == (None, None)


def test_a_database_of_another_program_is_reported_if_it_is_used() -> None:
    def borrowed(**environ: str) -> str | None:
        return read_environment(environ).borrowed_database

    assert borrowed(DATABASE_URL="postgresql://db/shop") == "DATABASE_URL"
    assert borrowed(DATABASE_URL="mysql://db/shop") is None
    assert borrowed(DATABASE_URL="postgresql://db/x", QBULL_DATABASE_URL="postgresql://db/y") is None


def test_the_variable_of_the_password_is_known() -> None:
    assert password_variable({"ADMIN_PASSWORD": "x", "QUEUES_UI_PASS": "y"}) == "QUEUES_UI_PASS"
    assert password_variable({"ADMIN_PASSWORD": "x"}) == "ADMIN_PASSWORD"
    assert password_variable({}) == "QBULL_PASSWORD"


def test_a_wrong_value_is_reported_with_the_variable_that_has_it() -> None:
    for name in ("QBULL_SLACK_WEBHOOK_URL", "SLACK_WEBHOOK_URL"):
        with pytest.raises(ConfigError, match=f"^{name}: give an address"):
            read_environment({name: "hooks"})
    for name in ("QBULL_TIMEZONE", "TZ"):
        with pytest.raises(ConfigError, match=f'^{name}="Europe/Nowhere": there is no such time zone'):
            read_environment({name: "Europe/Nowhere"})
    with pytest.raises(ConfigError, match=r'^QBULL_TIMEZONE="a\\nb": there is no such time zone; .*$'):
        read_environment({"QBULL_TIMEZONE": "a\nb"})
    with pytest.raises(ConfigError, match=r"^QBULL_PARTITIONS='0': give a whole number from 1"):
        read_environment({"QBULL_PARTITIONS": "0"})
