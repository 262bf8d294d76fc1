"""Redaction: hidden values are in no text, in whatever form."""

from __future__ import annotations

import base64
import html
import json
import string
import tracemalloc
from random import Random
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.redaction import REDACTED, error_kind, redact_error, redact_text, secrets_in

FORMS = {
    "plain": str,
    "upper": str.upper,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text))[3:-3],
    "repr": lambda text: repr(text)[1:-1],
    "repr of bytes": lambda text: repr(text.encode())[2:-1],
    "HTML": html.escape,
    "address": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "secret", ["hunter2-and-more", "quo\"te's", "päö wörd/=&", "back\\slash\nline", "0042"]
)
def test_a_hidden_value_is_in_no_form_in_a_text(form: str, secret: str) -> None:
    written = FORMS[form](secret)

    shown = redact_text(f"cannot log in with <{written}> today", {secret})

    assert written not in shown
    assert REDACTED in shown


@given(
    st.text(min_size=4, max_size=30),
    st.sampled_from(sorted(FORMS)),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_whatever_the_value_is(secret: str, form: str, before: str, after: str) -> None:
    written = FORMS[form](secret)

    shown = redact_text(before + written + after, {secret})

    assert secret not in shown.replace(REDACTED, "\0")


def test_a_short_value_is_taken_out_as_a_word() -> None:
    assert redact_text("code 123 is not 1234", {"123"}) == f"code {REDACTED} is not 1234"


def test_the_start_of_a_value_at_the_end_of_a_cut_text_is_taken_out() -> None:
    assert redact_text("wrong password correct-horse-bat…", {"correct-horse-battery-staple"}) == (
        f"wrong password {REDACTED}"
    )


def test_of_several_values_that_a_cut_text_may_end_with_the_longest_start_is_taken_out() -> None:
    assert redact_text("aaaaabaab", {"aaaaabaabbb", "baabbababbb"}) == REDACTED


def test_large_arguments_cost_little() -> None:
    """Each form of each value used to be part of one pattern: four seconds and 500 MB for these."""
    random = Random(1)
    secrets = {"".join(random.choices(string.printable, k=1000)) for _ in range(50)}
    tracemalloc.start()

    text = redact_text("ValueError: no such item in the store", secrets)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text == "ValueError: no such item in the store"
    assert peak < 10_000_000


def test_if_there_are_too_many_values_the_whole_text_is_hidden() -> None:
    assert redact_text("ValueError: no such item", {f"item-{n}" for n in range(10_000)}) == REDACTED


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("ValueError: 4111 is refused", f"ValueError: {REDACTED} is refused"),
        (
            'job 01a1 (ship) of queue "orders" failed: ValueError: pass is refused',
            f'job 01a1 (ship) of queue "orders" failed: ValueError: {REDACTED}',
        ),
        (
            'job 02 (tell) of queue "b" failed: job 01 (ship) of queue "a" failed: ValueError: pass',
            f'job 02 (tell) of queue "b" failed: job 01 (ship) of queue "a" failed: ValueError: {REDACTED}',
        ),
        (
            'JobFailed: queue "orders": job 01a1 failed: the pass is refused',
            f'JobFailed: queue "orders": job 01a1 failed: {REDACTED}',
        ),
    ],
)
def test_of_the_error_of_another_job_the_type_is_left(error: str, shown: str) -> None:
    assert redact_error(error, {"4111"}) == shown


def test_values_are_found_wherever_a_hidden_name_is() -> None:
    payload = {"user": {"Password": ["one", {"x": 2222}]}, "list": [{"password": "three"}], "open": "four"}

    assert secrets_in(payload, {"password"}) == {"one", "2222", "three"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ValueError: card 4111", f"ValueError: {REDACTED}"),
        ("shop.errors.CardError: 4111", f"shop.errors.CardError: {REDACTED}"),
        ("the card 4111 is refused", REDACTED),
        ("4111: ValueError", REDACTED),
    ],
)
def test_of_an_error_the_type_is_left(error: str, kind: str) -> None:
    assert error_kind(error) == kind
