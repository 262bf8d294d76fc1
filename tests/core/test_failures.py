"""Failures of one kind: what differs from job to job is taken out of an error, and nothing else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.failures import MAX_FORM_CHARS, fingerprint, normal_form


@pytest.mark.parametrize(
    ("error", "form"),
    [
        ("ValueError: no mailbox for user 17", "ValueError: no mailbox for user <n>"),
        ("took 1,234.5 s", "took <n> s"),
        ("<Till object at 0x7f3a1c2b4d5e>", "<Till object at <address>>"),
        ("no order 0199c2f0-a1b2-7000-b4a1-f3c2d5e6f708", "no order <id>"),
        ("no order 0199c2f0a1b27000b4a1f3c2d5e6f708", "no order <id>"),
        ("commit deadbeef1 is gone", "commit <id> is gone"),
        ("cannot reach 10.0.0.7:6379", "cannot reach <ip>"),
        ("no such user: ada.lovelace+x@example.co.uk", "no such user: <mail>"),
        ("token sk_live_4eC39HqLyjWDarjtT1zdp7dc", "token sk_live_<id>"),
        ("KeyError: 'user_42'", "KeyError: 'user_<n>'"),
        ("two\n  lines", "two lines"),
        ("ConnectionError: refused", "ConnectionError: refused"),
        ("facade effaced", "facade effaced"),
        ("", ""),
    ],
)
def test_details_are_taken_out(error: str, form: str) -> None:
    assert normal_form(error) == form


def test_failures_of_one_kind_have_one_name() -> None:
    assert fingerprint("user 17 has no card") == fingerprint("user 18 has no card")
    assert fingerprint("user 17 has no card") != fingerprint("user 17 has no name")


def test_the_name_is_the_same_in_every_release() -> None:
    assert fingerprint("user 17 has no card") == "a3c0b3fc393b"


@given(st.text(max_size=3000))
def test_any_text_has_a_short_form_and_a_name(error: str) -> None:
    assert len(normal_form(error)) <= MAX_FORM_CHARS
    assert len(fingerprint(error)) == 12


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_a_number_does_not_matter(one: int, other: int) -> None:
    assert normal_form(f"row {one} is locked") == normal_form(f"row {other} is locked")


@pytest.mark.parametrize(
    "text", ["a" * 2000, "1." * 1000, "a@" * 1000, "a.b-" * 500, "0x" * 1000, "1,1" * 700]
)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()

    normal_form(text)

    assert time.process_time() - began < 0.5
