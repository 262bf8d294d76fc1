"""Settings and the environment: a wrong value stops the start with one line that names it."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbull import environment
from qbull.config import (
    DEFAULT_KEEP,
    Keep,
    Lane,
    QueueSettings,
    check_name,
    check_prefix,
)
from qbull.environment import Environment, read_environment
from qbull.errors import ConfigError


def test_without_settings_a_queue_is_what_the_contract_says() -> None:
    queue = QueueSettings("email")

    assert (queue.partitions, queue.order, queue.concurrency, queue.lane, queue.timeout) == (
        1,
        None,
        5,
        None,
        None,
    )
    assert queue.keep == Keep(completed=10_000, failed=100_000, completed_for=86_400, failed_for=2_592_000)
    assert queue.keep is DEFAULT_KEEP
    assert queue.on_failed == "continue"


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 0),
        ({"order": "key"}, 1),
        ({"order": "partition"}, 1),
        ({"lane": Lane(limit=3)}, 3),
        ({"order": "key", "lane": Lane(limit=1)}, 1),
    ],
)
def test_order_and_lane_say_how_many_of_a_key_may_run(settings: dict[str, Any], limit: int) -> None:
    assert QueueSettings("email", **settings).lane_limit == limit


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"partitions": 0}, "partitions=0: give a whole number from 1 to 1,024"),
        ({"partitions": -1}, "partitions=-1: give a whole number from 1 to 1,024"),
        ({"partitions": 1.5}, "partitions=1.5: give a whole number from 1 to 1,024"),
        ({"partitions": "4"}, "partitions='4': give a whole number from 1 to 1,024"),
        ({"concurrency": 0}, "concurrency=0: give a whole number from 1 to 1,000,000,000"),
        ({"order": "fifo"}, "order='fifo': use \"key\" or \"partition\", or None"),
        ({"on_failed": "stop"}, "on_failed='stop': use \"continue\" or \"halt\""),
        ({"on_failed": "halt"}, 'on_failed="halt" stops an ordered lane; set order="key" or order="partition"'),
        ({"order": "key", "lane": Lane(limit=2)}, 'order="key" runs one job at a time, Lane(limit=2) more; choose one of them'),
        ({"timeout": 0}, "timeout=0: must be more than 0 seconds, or None"),
        ({"timeout": -1}, "timeout=-1: must be more than 0 seconds, or None"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_in_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        QueueSettings("email", **wrong)

    assert str(refused.value) == f'queue "email": {message}'


@pytest.mark.parametrize("name", ["email", "e", "billing.eu-west_1", "x" * 100, "0"])
def test_a_plain_name_is_accepted(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", ["", "x" * 101, "a b", "a:b", "{a}", "ñ", "a\n", "a/b"])
def test_a_name_that_could_break_a_key_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="use 1 to 100 letters, digits, dots, hyphens or underscores"):
        QueueSettings(name)


@pytest.mark.parametrize(
    "wrong", [{"completed": -1}, {"failed": -1}, {"completed_for": -1}, {"failed_for": -0.5}]
)
def test_keeping_less_than_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^Keep\(.*\): must not be negative; 0 keeps none$"):
        Keep(**wrong)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_lane_lets_at_least_one_job_through(limit: int) -> None:
    with pytest.raises(ConfigError, match=f"^Lane\\(limit={limit}\\): at least one"):
        Lane(limit=limit)


@pytest.mark.parametrize(
    ("given", "prefix"),
    [("ceres", "ceres"), ("ceres:", "ceres"), ("ceres::", "ceres"), ("a:b", "a:b"), ("a.b-c_D", "a.b-c_D")],
)
def test_a_prefix_may_end_in_a_colon(given: str, prefix: str) -> None:
    assert check_prefix(given) == prefix


@pytest.mark.parametrize("wrong", ["", ":", "a b", "{a}", "a}b", "x" * 101, "ñ", "a\n"])
def test_a_prefix_that_could_break_a_key_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"^prefix=.*: use 1 to 100 letters"):
        check_prefix(wrong)


def test_an_empty_environment_says_nothing() -> None:
    assert read_environment({}) == Environment()
    assert read_environment({"QBULL_PREFIX": "", "PARTITIONS": "", "QBULL_LOG_LEVEL": ""}) == Environment()


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"QBULL_URL": "redis://a"}, {"url": "redis://a"}),
        ({"REDIS_URL": "redis://b"}, {"url": "redis://b"}),
        ({"QBULL_URL": "redis://a", "REDIS_URL": "redis://b"}, {"url": "redis://a"}),
        ({"QBULL_URL": "", "REDIS_URL": "redis://b"}, {"url": "redis://b"}),
        ({"QBULL_PREFIX": "ceres"}, {"prefix": "ceres"}),
        ({"REDIS_PREFIX": "ceres:"}, {"prefix": "ceres"}),
        ({"QBULL_PREFIX": "a", "REDIS_PREFIX": "b"}, {"prefix": "a"}),
        ({"TOTAL_PARTITIONS": "8"}, {"partitions": 8}),
        ({"PARTITIONS": "4"}, {"partitions": 4}),
        ({"TOTAL_PARTITIONS": "8", "PARTITIONS": "4"}, {"partitions": 8}),
        ({"MIN_IDLE_TIME_MS": "1500"}, {"min_idle": 1.5}),
        ({"QBULL_LOG_FORMAT": "JSON"}, {"log_format": "json"}),
        ({"QBULL_LOG_LEVEL": "debug"}, {"log_level": "DEBUG"}),
        ({"QBULL_JOB_LOG": "no"}, {"job_log": False}),
        ({"HOME": "/root", "partitions": "9"}, {}),
    ],
)
def test_each_variable_is_read(environ: dict[str, str], said: dict[str, Any]) -> None:
    assert read_environment(environ) == Environment(**said)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TOTAL_PARTITIONS", "many", "TOTAL_PARTITIONS='many': give a whole number from 1"),
        ("TOTAL_PARTITIONS", "0", "TOTAL_PARTITIONS='0': give a whole number from 1"),
        ("PARTITIONS", "-4", "PARTITIONS='-4': give a whole number from 1"),
        ("PARTITIONS", "4.5", "PARTITIONS='4.5': give a whole number from 1"),
        ("MIN_IDLE_TIME_MS", "soon", "MIN_IDLE_TIME_MS='soon': give a whole number from 500"),
        ("MIN_IDLE_TIME_MS", "499", "MIN_IDLE_TIME_MS='499': give a whole number from 500"),
        ("QBULL_LOG_FORMAT", "xml", "QBULL_LOG_FORMAT='xml': use one of text, json"),
        ("QBULL_LOG_LEVEL", "LOUD", "QBULL_LOG_LEVEL='LOUD': use one of INFO, DEBUG, WARNING, ERROR"),
        ("QBULL_PREFIX", "a b", "QBULL_PREFIX='a b': use 1 to 100 letters, digits, dots, colons, hyphens or underscores"),
        ("REDIS_PREFIX", "{x}", "REDIS_PREFIX='{x}': use 1 to 100 letters, digits, dots, colons, hyphens or underscores"),
    ],
)  # fmt: skip
def test_a_wrong_value_in_the_environment_is_one_line_that_names_it(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_environment({name: value})

    assert str(refused.value) == message


_VARIABLES = sorted(
    set(re.findall(r'"([A-Z][A-Z_]{1,}[A-Z])"', inspect.getsource(environment)))
    - {"INFO", "DEBUG", "WARNING", "ERROR", "UTC"}
)
_odd = st.one_of(
    st.sampled_from(
        [
            "0",
            "-1",
            "1e9",
            "9" * 40,
            "nan",
            "yes",
            "json",
            "strict",
            "static",
            "leased",
            "worker-3",
            "worker-",
            "Europe/Berlin",
            "../etc/passwd",
            "redis://",
            "postgresql://x",
            "https://example.org",
            "https://[",
            "http://a b",
            ",",
            "a,b,,c",
            "\n",
            "{x}",
            "١",
        ]
    ),
    st.text(max_size=20),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(_VARIABLES), _odd, max_size=5))
def test_any_environment_is_read_or_refused_in_one_line(environ: dict[str, str]) -> None:
    said = refusal(environ)

    assert "\n" not in said
    assert not said or any(
        name.partition("_")[2] in said or name in said for name in (*environ, "environment")
    )


def refusal(environ: dict[str, str]) -> str:
    try:
        read_environment(environ)
    except ConfigError as refused:
        return str(refused)
    return ""
