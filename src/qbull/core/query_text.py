"""The text of a query: terms, values, quotes and stars. `job_query` gives them their meaning."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec

from qbull.errors import ArgumentsError

MAX_QUERY_CHARS = 1000
MAX_QUERY_TERMS = 30
MAX_TERM_VALUES = 50
STAR = "*"

_FIELD = re.compile(r"[A-Za-z][^\s:\",*]*")
_PLAIN_VALUE = re.compile(r"[^\s\",*]+")
_PLAIN_WORD = re.compile(r"[^\s\":*-][^\s\":*]*")
_SPACES = re.compile(r"\s+")
_NUMBER_CHARS = frozenset("0123456789+-.e")
"""A number may be written in several ways."""


class QueryValue(msgspec.Struct, frozen=True, dict=True):
    """A text with stars in it, each of which stands for any text.

    Args:
        parts: the texts between the stars; a value without a star has one part.
    """

    parts: tuple[str, ...]

    @property
    def has_star(self) -> bool:
        return len(self.parts) > 1

    @property
    def is_anything(self) -> bool:
        return self.has_star and not any(self.parts)

    def equals(self, text: str) -> bool:
        """Whether the whole text is this value."""
        first, *rest = self.parts
        if not rest:
            return text == first
        *middle, last = rest
        if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
            return False
        return _in_order(middle, text, len(first), len(text) - len(last))

    def is_in(self, text: str) -> bool:
        """Whether a part of the text is this value. Upper and lower case are the same."""
        low = text.lower()
        return _in_order(self._low_parts, low, 0, len(low))

    def may_be_in_json(self, encoded: bytes) -> bool:
        """Whether a value in this JSON text may have this value in it: a quick look, without decoding.

        Only plain text is the same in JSON: not numbers, nor what JSON escapes, nor letters beyond ASCII.
        """
        part = self._plain_part
        if part is None or encoded[:1] not in (b"{", b"[") or b"\\" in encoded or not encoded.isascii():
            return True
        return part in encoded.lower()

    @cached_property
    def _low_parts(self) -> list[str]:
        return [part.lower() for part in self.parts]

    @cached_property
    def _plain_part(self) -> bytes | None:
        plain = [part for part in self._low_parts if part.isascii() and not _NUMBER_CHARS.issuperset(part)]
        return max(plain, key=len).encode() if plain else None

    def __str__(self) -> str:
        return STAR.join(
            _quoted(part, _PLAIN_VALUE) if part or not self.has_star else "" for part in self.parts
        )


class QueryTerm(msgspec.Struct, frozen=True):
    """One condition.

    Args:
        field: the name of the field; empty for a word.
        values: the alternatives; a word has one.
        negated: whether the condition must not hold.
    """

    field: str
    values: tuple[QueryValue, ...]
    negated: bool = False

    def __str__(self) -> str:
        sign = "-" if self.negated else ""
        if self.field:
            return f"{sign}{self.field}:{','.join(map(str, self.values))}"
        (word,) = self.values
        return sign + STAR.join(
            _quoted(part, _PLAIN_WORD) if part or not word.has_star else "" for part in word.parts
        )


def read_terms(text: str) -> list[QueryTerm]:
    """The terms of a query. Raises ArgumentsError if the text is none."""
    if len(text) > MAX_QUERY_CHARS:
        raise ArgumentsError(f"query: has {len(text):,} characters; the maximum is {MAX_QUERY_CHARS:,}")
    reader = _Reader(text)
    terms = []
    while (term := reader.term()) is not None:
        terms.append(term)
        if len(terms) > MAX_QUERY_TERMS:
            raise ArgumentsError(f"query: has more than {MAX_QUERY_TERMS} terms; use fewer")
    return terms


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def term(self) -> QueryTerm | None:
        """The next term; None at the end."""
        if spaces := _SPACES.match(self._text, self._at):
            self._at = spaces.end()
        if self._at >= len(self._text):
            return None
        negated = self._text[self._at] == "-"
        self._at += negated
        field = _FIELD.match(self._text, self._at)
        if field is not None and self._text[field.end() : field.end() + 1] == ":":
            self._at = field.end() + 1
            return QueryTerm(_lower_name(field[0]), self._values(field[0]), negated)
        word = self._value("")
        if word is None:
            raise self._problem('"-" excludes the term that follows it; write it like -state:completed')
        return QueryTerm("", (word,), negated)

    def _values(self, field: str) -> tuple[QueryValue, ...]:
        values = []
        while True:
            value = self._value(",")
            if value is None:
                raise self._problem(f'"{field[:40]}:" needs a value; for an empty one, write {field[:40]}:""')
            values.append(value)
            if len(values) > MAX_TERM_VALUES:
                raise ArgumentsError(f'query: "{field[:40]}:" has more than {MAX_TERM_VALUES} values')
            if self._text[self._at : self._at + 1] != ",":
                return tuple(values)
            self._at += 1

    def _value(self, end: str) -> QueryValue | None:
        """Plain and quoted pieces up to a space or `end`; None if there is nothing."""
        parts, began = [""], self._at
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter.isspace() or letter == end:
                break
            if letter == '"':
                parts[-1] += self._quoted_piece()
                continue
            self._at += 1
            if letter != STAR:
                parts[-1] += letter
            elif len(parts) == 1 or parts[-1]:
                parts.append("")
        if self._at == began:
            return None
        return QueryValue(tuple(parts))

    def _quoted_piece(self) -> str:
        piece: list[str] = []
        start = self._at
        self._at += 1
        while self._at < len(self._text):
            letter = self._text[self._at]
            self._at += 1
            if letter == '"':
                return "".join(piece)
            if letter == "\\" and self._at < len(self._text):
                letter = self._text[self._at]
                self._at += 1
            piece.append(letter)
        self._at = start
        raise self._problem('a quotation mark is not closed; close it, or write \\" within quotes')

    def _problem(self, text: str) -> ArgumentsError:
        return ArgumentsError(f"query: at character {self._at + 1}: {text}")


def _lower_name(field: str) -> str:
    """Names of fields in lower case. Names of arguments stay as they are."""
    first, dot, rest = field.partition(".")
    return first.lower() + dot + rest


def _quoted(text: str, plain: re.Pattern[str]) -> str:
    if plain.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _in_order(parts: list[str], text: str, start: int, end: int) -> bool:
    for part in parts:
        found = text.find(part, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return True
