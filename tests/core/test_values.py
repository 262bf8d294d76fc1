"""Values that msgspec does not know: they travel as plain data, and come back as annotated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.codec import Signature, encode_payload, encode_result
from qbull.core.values import DEFAULT_HOOKS, MAX_RANGE_ITEMS, make_hooks
from qbull.errors import ArgumentsError, DeclarationError, PayloadError


class UserId(int): ...


class Slug(str): ...


class Ratio(float): ...


def travelled(kind: Any, value: Any) -> Any:
    """The value after its travel as an argument of this annotation."""

    def task(value: Any) -> None: ...

    task.__annotations__ = {"value": kind}
    signature = Signature("task", task)
    payload, _ = signature.encode((value,), {})
    [arrived], _ = signature.decode(payload)
    return arrived


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Path, Path("/data/in.csv")),
        (PurePosixPath, PurePosixPath("a/b")),
        (list[Path], [Path("a"), Path("b")]),
        (range, range(10)),
        (range, range(10, 0, -3)),
        (range, range(0)),
        (range, range(7, 8, 100)),
        (IPv4Address, IPv4Address("10.0.0.1")),
        (UserId, UserId(7)),
        (Slug, Slug("a-b")),
        (Ratio, Ratio(0.5)),
        (set[int], {1, 2}),
        (list, [1, "a"]),
        (np.float32, np.float32(1.5)),
        (np.int8, np.int8(7)),
        (np.bool_, np.bool_(True)),
        (np.datetime64, np.datetime64("2026-01-02T03:04:05")),
        (pd.Timestamp, pd.Timestamp("2026-01-02T03:04:05", tz="UTC")),
        (pd.Timedelta, pd.Timedelta(days=1, seconds=2)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_comes_back_as_annotated(kind: Any, value: Any) -> None:
    arrived = travelled(kind, value)

    assert arrived == value
    assert type(arrived) is type(value)


@given(st.integers(-100, 100), st.integers(-100, 100), st.integers(-20, 20).filter(bool))
def test_every_range_comes_back(start: int, stop: int, step: int) -> None:
    assert travelled(range, range(start, stop, step)) == range(start, stop, step)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Path("a/b"), "a/b"),
        (range(3), [0, 1, 2]),
        (deque([1, 2]), [1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ({Path("a"): 1, np.int8(3): 2}, {"a": 1, "3": 2}),
        ([np.float32(0.5), UserId(3), Slug("s")], [0.5, 3, "s"]),
        (pd.NA, None),
        (pd.NaT, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_without_an_annotation_the_plain_form_arrives(value: Any, plain: Any) -> None:
    assert msgspec.json.decode(encode_result(value)) == plain


def test_a_datetime_of_another_type_is_a_datetime_for_the_task() -> None:
    class Aware(datetime): ...

    moment = Aware(2026, 1, 2, 3, tzinfo=UTC)

    assert travelled(datetime, moment) == moment
    assert type(travelled(Aware, moment)) is Aware


def test_a_timedelta_of_another_type_comes_back_as_annotated() -> None:
    class Span(timedelta): ...

    assert travelled(timedelta, Span(minutes=5)) == timedelta(minutes=5)
    arrived = travelled(Span, Span(days=-1, seconds=3, microseconds=7))
    assert (type(arrived), arrived) == (Span, Span(days=-1, seconds=3, microseconds=7))


def test_a_timestamp_of_pandas_comes_back_as_annotated() -> None:
    def plan(when: Any) -> None: ...

    plan.__annotations__ = {"when": pd.Timestamp}
    signature = Signature("plan", plan)

    [arrived], _ = signature.decode(b'{"when":"2026-01-02T03:04:05"}')

    assert type(arrived) is pd.Timestamp
    assert arrived == datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Path, 7, "value: expected str, got int"),
        (range, [1, 2, 4], "value: expected numbers at equal distances for a range"),
        (range, [1, 1], "value: expected numbers at equal distances for a range"),
        (UserId, "7", "value: expected int, got str"),
        (IPv4Address, "here", "value: expected 4 octets in 'here'"),
        (np.int8, 300, "value: 300 is out of the bounds of int8"),
        (np.int8, 1.5, "value: expected int, got float"),
        (np.bool_, 3, "value: 3 is out of the bounds of bool"),
    ],
)
def test_plain_data_that_is_no_such_value_is_refused(kind: Any, value: Any, reason: str) -> None:
    with pytest.raises(ArgumentsError) as refused:
        travelled(kind, value)

    assert str(refused.value) == f'task "task": {reason}'


def test_a_range_that_is_too_long_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(PayloadError, match="a range of 1,000,000,000,000 numbers is too long"):
        encode_result(range(10**12))

    assert encode_result(range(0, MAX_RANGE_ITEMS, MAX_RANGE_ITEMS)) == b"[0]"


@dataclass
class Row:
    name: str
    price: Any


class Report(msgspec.Struct):
    rows: list[Row]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1j, "a complex has no JSON form; "),
        ([1, 1j], "[1]: a complex has no JSON form; "),
        (Report([Row("a", 1), Row("b", {"net": 1j})]), "rows[1].price.net: a complex has no JSON form; "),
        ({"two words": [object()]}, "['two words'][0]: a object has no JSON form; "),
        ({"a": {(1, 2): 3}}, "a: a tuple cannot be a key of a dictionary; use texts or numbers"),
        ({"a": np.arange(2)}, "a: a ndarray has no JSON form; pass value.tolist(), or give the app"),
    ],
    ids=["alone", "in a list", "in a struct", "in a dictionary", "key", "array"],
)
def test_an_error_names_the_path_and_the_type_of_the_value(value: Any, message: str) -> None:
    with pytest.raises(PayloadError) as result:
        encode_result(value)
    with pytest.raises(PayloadError) as arguments:
        encode_payload("store", {"value": value})

    assert str(result.value).startswith(f"its result cannot be encoded: {message}")
    inner = message if message.startswith("[") else f".{message}"
    inner = f": {message}" if value == 1j else inner
    assert str(arguments.value).startswith(f'task "store": its arguments cannot be encoded: value{inner}')


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


def encode_celsius(value: Any) -> Any:
    if isinstance(value, Celsius):
        return value.degrees
    raise NotImplementedError


def decode_celsius(kind: type, value: Any) -> Any:
    if kind is Celsius:
        return Celsius(value)
    raise NotImplementedError


def test_a_hook_carries_a_type_of_the_user_and_leaves_others_alone() -> None:
    def store(at: Celsius, path: Path) -> None: ...

    hooks = make_hooks(encode_celsius, decode_celsius, DEFAULT_HOOKS)
    signature = Signature("store", store, hooks)

    payload, _ = signature.encode((Celsius(21.5), Path("a")), {})
    [celsius, path], _ = signature.decode(payload)

    assert payload == b'{"at":21.5,"path":"a"}'
    assert (type(celsius), celsius.degrees, path) == (Celsius, 21.5, Path("a"))


def test_the_hook_of_a_task_comes_before_that_of_the_app() -> None:
    app = make_hooks(lambda value: "app", None, DEFAULT_HOOKS)
    task = make_hooks(lambda value: "task", None, app)

    def give() -> None: ...

    assert Signature("give", give, task).encode_result(object()) == b'"task"'
    assert Signature("give", give, app).encode_result(object()) == b'"app"'


def test_without_a_hook_the_type_is_refused_when_the_task_is_declared() -> None:
    def store(at: Celsius) -> None: ...

    with pytest.raises(DeclarationError, match=r"at is a Celsius; .* or give the app or the task a dec_hook"):
        Signature("store", store)


@pytest.mark.parametrize("raised", [KeyError("unit"), AttributeError("degrees"), ValueError("too cold")])
def test_a_hook_that_fails_names_the_value_it_failed_for(raised: Exception) -> None:
    def fail(value: Any) -> Any:
        raise raised

    hooks = make_hooks(fail, None, DEFAULT_HOOKS)

    with pytest.raises(PayloadError, match=r"^its result cannot be encoded: \[1\]: ") as refused:
        encode_result([1, Celsius(1)], hooks=hooks)

    assert str(raised) in str(refused.value)


def test_a_result_that_a_hook_cannot_decode_comes_back_plain() -> None:
    def fail(kind: type, value: Any) -> Any:
        raise KeyError("unit")

    def give() -> Celsius: ...

    signature = Signature("give", give, make_hooks(None, fail, DEFAULT_HOOKS))

    assert signature.decode_result(b"21.5") == 21.5


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Path, {"type": "string", "format": "path"}),
        (range, {"type": "array", "items": {"type": "integer"}}),
        (UserId, {"type": "integer"}),
        (np.float32, {"title": "float32"}),
    ],
)
def test_a_schema_describes_the_plain_form(kind: Any, schema: dict[str, Any]) -> None:
    def task(value: Any) -> None: ...

    task.__annotations__ = {"value": kind}
    function: Callable[..., Any] = task
    described = Signature("task", function).schema()

    assert described is not None
    assert described["$defs"]["Arguments"]["properties"]["value"] == schema
