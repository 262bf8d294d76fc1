"""Records of steps: how arguments are told apart, and which errors come back as they were."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.durable import (
    History,
    StepRecord,
    decode_error,
    decode_record,
    digest_arguments,
    encode_error,
    encode_record,
    make_error,
)
from qbull.errors import Fail, StepFailed

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Declined(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"declined with {code}")
        self.code = code


class Changing(Exception):
    def __init__(self) -> None:
        super().__init__(object())


@dataclass
class Order:
    number: int


@given(st.lists(plain), st.dictionaries(st.text(), plain))
def test_equal_arguments_have_equal_digests(args: list[object], kwargs: dict[str, object]) -> None:
    backwards = dict(reversed(kwargs.items()))
    assert digest_arguments(tuple(args), kwargs) == digest_arguments(tuple(args), backwards)


@given(st.lists(plain), st.lists(plain))
def test_different_arguments_have_different_digests(one: list[object], other: list[object]) -> None:
    if one != other:
        assert digest_arguments(tuple(one), {}) != digest_arguments(tuple(other), {})


def test_an_object_without_a_json_form_counts_by_its_type() -> None:
    class Client: ...

    assert digest_arguments((Client(), Order(1)), {}) == digest_arguments((Client(), Order(1)), {})
    assert digest_arguments((Client(), Order(1)), {}) != digest_arguments((Client(), Order(2)), {})
    assert digest_arguments((Client(),), {}) != digest_arguments((object(),), {})


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("a"),
        Declined(51),
        Fail("never"),
        OSError(2, "gone"),
        TimeoutError(),
        Exception(1, "b"),
    ],
)
def test_an_error_of_plain_values_comes_back_as_it_was(error: Exception) -> None:
    encoded, shown = encode_error("charge", error)

    again = make_error("charge", decode_error(encoded))

    assert shown is error
    assert type(again) is type(error)
    assert (again.args, str(again), again.__dict__) == (error.args, str(error), error.__dict__)


def test_any_other_error_is_a_step_failed_at_once_and_in_a_replay() -> None:
    class Local(Exception): ...

    for error in (Local("x"), Changing(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")):
        encoded, shown = encode_error("charge", error)
        again = make_error("charge", decode_error(encoded))

        assert isinstance(shown, StepFailed) and shown.__cause__ is error
        assert isinstance(again, StepFailed)
        assert str(again) == str(shown)
        assert (again.step, again.error_type) == ("charge", type(error).__name__)


def test_an_error_whose_class_is_gone_is_a_step_failed() -> None:
    encoded, _ = encode_error("charge", Declined(51))

    again = make_error("charge", decode_error(encoded.replace(b"Declined", b"Refused1")))

    assert isinstance(again, StepFailed)
    assert str(again).startswith('step "charge" failed: ')


def test_a_record_of_a_newer_version_is_read() -> None:
    packed = encode_record(StepRecord(3, "charge", b"12345678", 1, "r", b"7"))
    longer = bytes((packed[0] + 1,)) + packed[1:] + b"\x01"

    assert decode_record(longer) == decode_record(packed)
    with pytest.raises(ValueError, match="cannot be read"):
        decode_record(b"nonsense")


def test_a_checkpoint_forgets_the_steps_after_its_first_call() -> None:
    history = History()
    before, _ = history.ask("step", b"")
    history.put(StepRecord(1, *before, "r", b"1"), 10)
    history.put(StepRecord(2, "checkpoint ", b"", 0, "c", b"0"), 10)
    history.last = 2
    history.open_checkpoint("checkpoint ", 2)
    inside, _ = history.ask("step", b"")
    history.put(StepRecord(3, *inside, "r", b"1"), 10)
    history.last = 3

    history.rewind("checkpoint ")

    assert (list(history.records), history.last, history.size) == ([1, 2], 2, 20)
    assert history.ask("step", b"")[0] == inside
