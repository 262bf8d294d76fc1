"""Kinds of failures: the text of an error without its numbers, ids and addresses."""

from __future__ import annotations

import hashlib
import re

from qbull.core.record import split_ending

MAX_FORM_CHARS = 300

_DETAILS_PATTERN = re.compile(
    r"(?P<mail>[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})"
    r"|(?P<address>\b0x[0-9a-fA-F]+)"
    r"|(?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b)"
    r"|(?P<id>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
    r"|(?P<word>[A-Za-z0-9]+)"
)
_NUMBER_PATTERN = re.compile(r"\d+(?:[.,]\d+)*")


def normal_form(error: str) -> str:
    """The error without the parts that differ from job to job: the same for all failures of one kind."""
    form = _DETAILS_PATTERN.sub(_placeholder, error[: 4 * MAX_FORM_CHARS])
    form = " ".join(_NUMBER_PATTERN.sub("<n>", form).split())
    return form if len(form) <= MAX_FORM_CHARS else form[: MAX_FORM_CHARS - 1] + "…"


def fingerprint(error: str) -> str:
    """The name of a kind of failure: twelve hexadecimal digits, the same in every process and release."""
    return hashlib.blake2b(normal_form(error).encode("utf-8", "replace"), digest_size=6).hexdigest()


def is_fingerprint(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{12}", text) is not None


def kind_of_ending(ending: bytes) -> bytes:
    """The kind of failure of a packed ending, for the scripts: its fingerprint and its normal form."""
    error = split_ending(ending)[1].error or ""
    return f"{fingerprint(error)} {normal_form(error)}".encode("utf-8", "replace")


def _placeholder(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "mail" | "address" | "ip" | "id":
            return f"<{found.lastgroup}>"
        case _:
            word = found.group()
            return "<id>" if _is_id(word) else word


def _is_id(word: str) -> bool:
    """Whether a text is an id: long, with digits among its letters."""
    if len(word) < 8 or not any(letter.isdigit() for letter in word) or word.isdigit():
        return False
    return len(word) >= 16 or all(letter in "0123456789abcdefABCDEF" for letter in word)
