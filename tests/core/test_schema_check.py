"""A schema refuses nothing that the code would accept, and says what is wrong with the rest."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import pathlib
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.codec import Signature
from qbull.core.schema_check import SchemaCheck, SchemaError
from qbull.errors import ArgumentsError


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Line:
    article: str
    price: decimal.Decimal
    tags: set[str] = field(default_factory=set)


class Address(TypedDict, total=False):
    street: str


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str = "x"


class Pair(msgspec.Struct, array_like=True):
    x: int
    y: str = "q"


class Node(pydantic.BaseModel):
    name: str
    at: datetime.datetime | None = None
    inner: list[Node] = []


def task(
    id: uuid.UUID,
    when: datetime.datetime,
    wait: datetime.timedelta,
    raw: bytes,
    lines: list[Line],
    both: tuple[int, str],
    address: Address,
    pet: Cat | Dog,
    pair: Pair,
    color: Color,
    node: Node,
    path: pathlib.Path,
    word: Literal["a", 1],
    positive: Annotated[int, msgspec.Meta(gt=0)],
    anything: Any,
    by_number: dict[int, float],
    note: str | None = None,
) -> None: ...


FITS: dict[str, Any] = {
    "id": "7b0d7d4e-9f52-4f3c-9d53-1c2c1c1f9a11",
    "when": "2030-01-31T12:00:00Z",
    "wait": "PT5S",
    "raw": "aGk=",
    "lines": [{"article": "pen", "price": "1.5"}, {"article": "ink", "price": 2.5, "tags": ["a"]}],
    "both": [1, "x"],
    "address": {"street": "s"},
    "pet": {"type": "Cat", "lives": 9},
    "pair": [1],
    "color": "r",
    "node": {"name": "n", "inner": [{"name": "m", "at": "2030-01-31 12:00"}]},
    "path": "/tmp/x",
    "word": 1,
    "positive": 1,
    "anything": {"x": [None]},
    "by_number": {"1": 2},
}
SIGNATURE = Signature("task", task)


def check(arguments: Any) -> None:
    schema = SIGNATURE.schema()
    assert schema is not None
    SchemaCheck(schema)(arguments)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "x"}, 'id: expected uuid, got "x"'),
        ({"when": "noon"}, 'when: expected date-time, got "noon"'),
        ({"when": 3}, "when: expected date-time, got integer"),
        ({"wait": 5}, "wait: expected duration, got integer"),
        ({"raw": "é"}, 'raw: expected base64, got "é"'),
        ({"lines": [{"article": "pen"}]}, "lines[0].price: is missing; expected decimal"),
        ({"lines": [{"article": 1, "price": 1}]}, "lines[0].article: expected string, got integer"),
        ({"both": [1]}, "both: expected at least 2 items, got 1"),
        ({"both": ["x", "x"]}, "both[0]: expected integer, got string"),
        ({"pet": {"type": "Cow"}}, 'pet.type: expected "Cat" or "Dog", got "Cow"'),
        ({"pet": {"type": "Cat", "lives": "many"}}, "pet.lives: expected integer, got string"),
        ({"color": "x"}, 'color: expected "b" or "r", got "x"'),
        ({"node": {"name": "n", "inner": [{}]}}, "node.inner[0].name: is missing; expected string"),
        ({"word": "b"}, 'word: expected 1 or "a", got "b"'),
        ({"positive": 0}, "positive: expected more than 0, got 0"),
        ({"positive": True}, "positive: expected integer, got boolean"),
        ({"by_number": {"1": "x"}}, "by_number['1']: expected number, got string"),
        ({"note": 1}, "note: expected string or null, got 1"),
        ({"other": 1}, "other: is unknown"),
    ],
)
def test_a_misfit_is_named_with_its_path_and_what_is_expected(change: dict[str, Any], why: str) -> None:
    check(FITS)
    with pytest.raises(SchemaError) as refused:
        check(FITS | change)
    assert str(refused.value) == why
    with pytest.raises(ArgumentsError):
        SIGNATURE.decode(msgspec.json.encode(FITS | change))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-5, 5)
    | st.sampled_from(["", "a", "r", "Cat", "1.5"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "name", "1", "price"]), inner)
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(FITS)), JSON)
def test_the_schema_refuses_nothing_that_the_code_accepts(name: str, value: Any) -> None:
    arguments = FITS | {name: value}
    try:
        SIGNATURE.decode(msgspec.json.encode(arguments))
    except ArgumentsError:
        return
    check(arguments)


@given(JSON, JSON)
def test_no_schema_and_no_value_ends_in_another_error(schema: Any, value: Any) -> None:
    with contextlib.suppress(SchemaError):
        SchemaCheck(schema if isinstance(schema, dict) else {"anyOf": [schema]})(value)


def test_a_schema_that_leads_to_itself_ends() -> None:
    SchemaCheck({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})(1)
    SchemaCheck({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}})(1)
