"""Arguments and results as JSON: what goes in comes back as annotated, and what does not fit is refused by name."""

from __future__ import annotations

import contextlib
import decimal
import enum
import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qbull.core.codec import Signature, decode_untyped, encode_result
from qbull.errors import ArgumentsError, DeclarationError, PayloadError, TooLarge


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Address:
    street: str
    number: int = 1


@dataclass
class Customer:
    name: str
    addresses: list[Address] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Money(pydantic.BaseModel):
    amount: decimal.Decimal
    currency: str = pydantic.Field(min_length=3, max_length=3)


class Invoice(pydantic.BaseModel):
    number: int
    total: Money


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Opaque:
    pass


def takes_everything(
    customer: Customer,
    point: Point,
    money: Money,
    movie: Movie,
    when: datetime,
    day: date,
    wait: timedelta,
    id: uuid.UUID,
    price: decimal.Decimal,
    blob: bytes,
    colour: Colour,
    level: Level,
    tags: set[str],
    frozen: frozenset[int],
    pair: tuple[int, str],
    many: tuple[int, ...],
    maybe: int | None,
    either: int | str,
    nested: dict[str, list[Point]],
    numbered: dict[int, Colour],
    mode: Literal["fast", "slow"],
    positive: Annotated[int, msgspec.Meta(gt=0)],
    anything: Any,
) -> None: ...


EVERYTHING: dict[str, Any] = {
    "customer": Customer("Ada", [Address("Calle 1", 7), Address("Calle 2")]),
    "point": Point(1, 2),
    "money": Money(amount=decimal.Decimal("9.90"), currency="ARS"),
    "movie": {"title": "Relatos salvajes", "year": 2014},
    "when": datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC),
    "day": date(2026, 2, 3),
    "wait": timedelta(minutes=90, microseconds=1),
    "id": uuid.UUID("0190a4c1-7f2e-7003-8a1b-000000000001"),
    "price": decimal.Decimal("0.10"),
    "blob": bytes(range(256)),
    "colour": Colour.BLUE,
    "level": Level.HIGH,
    "tags": {"a", "ñ", "🚚"},
    "frozen": frozenset({1, 2}),
    "pair": (1, "one"),
    "many": (1, 2, 3),
    "maybe": None,
    "either": "text",
    "nested": {"line": [Point(0, 0), Point(1, 1)]},
    "numbered": {1: Colour.RED},
    "mode": "slow",
    "positive": 1,
    "anything": {"a": [1, 2.5, None, True, "x"]},
}


def there_and_back(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments as the worker's function would get them."""
    signature = Signature("t", function)
    payload, _ = signature.encode(args, kwargs)
    positional, keywords = signature.decode(payload)
    names = [name for name in signature.parameters if name not in keywords]
    return dict(zip(names, positional, strict=True)) | keywords


def test_every_supported_type_comes_back_as_annotated() -> None:
    assert there_and_back(takes_everything, **EVERYTHING) == EVERYTHING


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_comes_back_in_its_own_class(name: str) -> None:
    assert type(there_and_back(takes_everything, **EVERYTHING)[name]) is type(EVERYTHING[name])


def test_the_payload_is_json_that_any_language_reads() -> None:
    def move(user_id: str, by: Point, when: datetime) -> None: ...

    payload, _ = Signature("move", move).encode(
        ("u1", Point(1, 2)), {"when": datetime(2026, 1, 1, tzinfo=UTC)}
    )

    assert payload == b'{"user_id":"u1","by":{"x":1,"y":2},"when":"2026-01-01T00:00:00Z"}'


def test_an_aware_datetime_keeps_its_moment_and_offset() -> None:
    def at(when: datetime) -> None: ...

    cordoba = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=-3)))

    back = there_and_back(at, when=cordoba)["when"]

    assert back == cordoba
    assert back.utcoffset() == timedelta(hours=-3)


def test_arguments_by_position_by_name_and_by_default_are_one_call() -> None:
    def send(to: str, subject: str = "Hello", *, urgent: bool = False) -> None: ...

    expected = {"to": "a@b.c", "subject": "Hello", "urgent": False}

    assert there_and_back(send, "a@b.c") == expected
    assert there_and_back(send, to="a@b.c") == expected
    assert there_and_back(send, "a@b.c", "Hello", urgent=False) == expected


def test_keyword_only_arguments_are_given_by_keyword() -> None:
    def send(to: str, *, urgent: bool) -> None: ...

    signature = Signature("send", send)

    payload, _ = signature.encode(("a",), {"urgent": True})

    assert signature.decode(payload) == (["a"], {"urgent": True})


def test_a_default_that_changed_since_is_the_one_of_the_worker() -> None:
    def old(size: int = 1) -> None: ...
    def new(size: int = 2) -> None: ...

    payload, _ = Signature("t", old).encode((), {})

    assert Signature("t", new).decode(payload) == ([2], {})


def test_a_default_that_nobody_gave_is_not_sent_so_that_an_older_worker_can_run_the_job() -> None:
    def old(size: int) -> None: ...
    def new(size: int, colour: Colour = Colour.RED, tags: list[str] = []) -> None: ...  # noqa: B006

    payload, call = Signature("t", new).encode((3,), {})

    assert payload == b'{"size":3}'
    assert (call.size, call.colour, call.tags) == (3, Colour.RED, [])
    assert Signature("t", old).decode(payload) == ([3], {})


def test_a_default_that_somebody_gave_is_sent() -> None:
    def old(size: int) -> None: ...
    def new(size: int, colour: Colour = Colour.RED) -> None: ...

    payload, _ = Signature("t", new).encode((3, Colour.RED), {})

    with pytest.raises(ArgumentsError, match="colour"):
        Signature("t", old).decode(payload)


def test_each_job_gets_a_default_of_its_own() -> None:
    def gather(tags: list[str] = []) -> None: ...  # noqa: B006

    signature = Signature("gather", gather)

    [first], _ = signature.decode(b"{}")
    first.append("seen")

    assert signature.decode(b"{}") == ([[]], {})


def test_a_default_comes_as_it_is_annotated() -> None:
    def move(by: Point = {"x": 1}) -> None: ...  # type: ignore[assignment]  # noqa: B006

    assert Signature("move", move).decode(b"{}") == ([Point(1, 0)], {})


def test_a_parameter_that_is_new_in_the_worker_takes_its_default() -> None:
    def old(size: int) -> None: ...
    def new(size: int, colour: Colour = Colour.RED) -> None: ...

    payload, _ = Signature("t", old).encode((3,), {})

    assert Signature("t", new).decode(payload) == ([3, Colour.RED], {})


def test_arguments_without_annotations_come_back_as_plain_json() -> None:
    def anything(value) -> None: ...  # type: ignore[no-untyped-def]

    assert there_and_back(anything, value={"a": (1, 2)}) == {"value": {"a": [1, 2]}}


def test_plain_data_may_be_given_where_a_model_is_annotated() -> None:
    def bill(invoice: Invoice) -> None: ...

    back = there_and_back(bill, invoice={"number": 1, "total": {"amount": "9.90", "currency": "ARS"}})

    assert back == {"invoice": Invoice(number=1, total=Money(amount=decimal.Decimal("9.90"), currency="ARS"))}


def test_encoding_gives_the_arguments_as_the_worker_will_see_them() -> None:
    def bill(price: float, point: Point) -> None: ...

    _, call = Signature("bill", bill).encode((), {"price": 1, "point": {"x": 4}})

    assert (call.price, call.point) == (1.0, Point(4, 0))
    assert isinstance(call.price, float)


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, 2**64 - 1, -(2**63), 2**53 + 1, 10**30])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 0.0, 5e-324, 1.7976931348623157e308])
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)  # fmt: skip


@given(json_like)
def test_what_json_can_say_comes_back_the_same(value: Any) -> None:
    def anything(value) -> None: ...  # type: ignore[no-untyped-def]

    assert there_and_back(anything, value=value) == {"value": value}
    assert decode_untyped(encode_result(value)) == value


def test_minus_zero_keeps_its_sign() -> None:
    def scale(by: float) -> None: ...

    assert math.copysign(1, there_and_back(scale, by=-0.0)["by"]) == -1


@given(json_like)
def test_a_result_comes_back_the_same(value: Any) -> None:
    def give() -> Any: ...

    assert Signature("give", give).decode_result(encode_result(value)) == value


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_result_of_every_type_comes_back_as_annotated(name: str) -> None:
    def give() -> None: ...

    give.__annotations__["return"] = takes_everything.__annotations__[name]

    assert Signature("give", give).decode_result(encode_result(EVERYTHING[name])) == EVERYTHING[name]


def test_a_result_that_is_not_what_was_annotated_comes_back_plain() -> None:
    def give() -> int: ...

    assert Signature("give", give).decode_result(encode_result("text")) == "text"


def nested(orders: list[Customer], by: dict[str, Point], note: str = "") -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'orders'"),
        ((), {"orders": []}, "missing a required argument: 'by'"),
        (([],), {}, "missing a required argument: 'by'"),
        (([], {}, "", "more"), {}, "too many positional arguments"),
        (([], {}), {"by": {}}, "multiple values for argument 'by'"),
        ((), {"orders": [], "by": {}, "extra": 1}, "got an unexpected keyword argument 'extra'; it takes: orders, by, note"),
        ((), {"orders": [], "by": {}, "note": 7}, "note: expected str, got int"),
        ((), {"orders": [], "by": {}, "note": None}, "note: expected str, got null"),
        ((), {"orders": 7, "by": {}}, "orders: expected array, got int"),
        ((), {"orders": [{"name": 7}], "by": {}}, "orders[0].name: expected str, got int"),
        ((), {"orders": [Customer("a"), Customer(7)], "by": {}}, "orders[1].name: expected str, got int"),  # type: ignore[arg-type]
        ((), {"orders": [{}], "by": {}}, "orders[0]: object missing required field name"),
        ((), {"orders": [], "by": {"a": {"x": "1"}}}, "by[...].x: expected int, got str"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused_and_the_field_is_named(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentsError) as refused:
        Signature("bill", nested).encode(args, kwargs)

    assert str(refused.value) == f'task "bill": {message}'


def test_a_models_own_rule_is_checked_before_anything_is_sent() -> None:
    def pay(money: Money) -> None: ...

    with pytest.raises(ArgumentsError, match=r"money: .*currency.*at least 3 characters") as refused:
        Signature("pay", pay).encode((), {"money": {"amount": "1", "currency": "x"}})

    assert "\n" not in str(refused.value)


def test_a_bound_in_the_annotation_is_checked() -> None:
    def repeat(times: Annotated[int, msgspec.Meta(gt=0)]) -> None: ...

    with pytest.raises(ArgumentsError, match="times: expected int >= 1"):
        Signature("repeat", repeat).encode((0,), {})


@pytest.mark.parametrize(
    "value",
    [object(), Opaque(), Opaque, 1 + 2j, lambda: 1, {(1, 2): 3}, {None: 1}, "\ud800", [object()]],
    ids=["object", "instance", "class", "complex", "function", "tuple key", "none key", "surrogate", "in a list"],
)  # fmt: skip
def test_a_value_without_a_json_form_is_refused(value: object) -> None:
    def anything(value: Any) -> None: ...

    with pytest.raises(PayloadError, match=r'^task "anything": its arguments cannot be encoded: '):
        Signature("anything", anything).encode((value,), {})


@pytest.mark.parametrize(
    "value", [object(), 1 + 2j, "\ud800", {(1, 2): 3}], ids=["object", "complex", "text", "key"]
)
def test_a_result_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(PayloadError, match=r"^its result cannot be encoded: "):
        encode_result(value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    def scale(by: float) -> None: ...

    with pytest.raises(ArgumentsError, match="by: expected float, got null"):
        Signature("scale", scale).encode((number,), {})


def test_data_that_contains_itself_is_refused() -> None:
    def anything(value: Any) -> None: ...

    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(PayloadError, match="recursion"):
        Signature("anything", anything).encode((loop,), {})
    with pytest.raises(PayloadError, match="recursion"):
        encode_result(loop)


def test_arguments_beyond_the_limit_are_refused_with_both_numbers() -> None:
    def store(text: str) -> None: ...

    signature = Signature("store", store)

    signature.encode(("x" * 989,), {}, 1000)
    with pytest.raises(TooLarge, match=r"take 1,001 bytes, the limit is 1,000; pass a reference"):
        signature.encode(("x" * 990,), {}, 1000)


def test_a_result_beyond_the_limit_is_refused() -> None:
    encode_result("x" * 98, 100)

    with pytest.raises(TooLarge, match="result takes 101 bytes, the limit is 100"):
        encode_result("x" * 99, 100)


def star_args(*args: int) -> None: ...
def star_kwargs(**kwargs: int) -> None: ...
def positional_only(a: int, /) -> None: ...
def unresolvable(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def unresolvable_attribute(a: decimal.Nowhere) -> None: ...  # type: ignore[name-defined]
def not_a_type(a: 5) -> None: ...  # type: ignore[valid-type]
def two_models(a: int | Money) -> None: ...
def never_carried(a: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (star_args, r"\*args cannot be carried by name"),
        (star_kwargs, r"\*kwargs cannot be carried by name"),
        (positional_only, 'a is positional-only, .* remove the "/"'),
        (unresolvable, "name 'Nowhere' is not defined; annotations must name types that exist"),
        (unresolvable_attribute, "has no attribute 'Nowhere'"),
        (not_a_type, "annotations cannot be carried"),
        (two_models, "annotations cannot be carried"),
        (never_carried, "Opaque"),
    ],
)
def test_a_task_whose_arguments_cannot_travel_is_refused_when_declared(function: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=f'^task "work": .*{message}'):
        Signature("work", function)


@given(st.binary(max_size=60) | json_like.map(msgspec.json.encode))
def test_any_bytes_are_arguments_or_refused(noise: bytes) -> None:
    def work(a: int = 1, b: str = "x") -> None: ...

    with contextlib.suppress(ArgumentsError):
        positional, keywords = Signature("work", work).decode(noise)
        assert (len(positional), keywords) == (2, {})


@example(b'"\x80"')
@given(st.binary(max_size=60))
def test_any_bytes_can_be_shown(noise: bytes) -> None:
    decode_untyped(noise)
