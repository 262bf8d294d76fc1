"""Lints of the English in docstrings, comments, messages and help texts."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

from house.source import Finding, House, Source

BE = "(?:is|are|was|were|be|been)"
# The idiom, and the plain English for it.
IDIOMS = {
    r"\b[Ww]hoever\b": "name the subject: a worker, a caller, users",
    r"(?:\A|[.!?:;]\s+)What\s(?![^.!?]*\?)": 'start with a noun, not with "What"',
    r"\bsays? so\b": "logs, reports",
    r"\bfor good\b": "permanently",
    rf"\b{BE} away\b": "unavailable",
    r"\b[Bb]eg[iau]n(?:s|ning)?\b": "start",
    rf"\b{BE} not to be\b": "cannot, must not",
    r"\b(?:is|are) to be\b": "must be, will be",
    r"\b[Ss]o many at (?:most|once)\b": "maximum number of",
    r"\b[Oo]f most\b": "the default",
    r"\bwithout a trace\b": "permanently",
    r"\bsaid of\b": "reported for",
    r"\bbear to be\b": "idempotent",
    r"\bsent round again\b": "redriven",
}  # fmt: skip
CONDITION = (
    r"\b[Ww]here (?:it|that|there|none|nothing|nobody|no|neither|one|they|this) "
    r"(?:\w+ )?(?:is|are|was|were|has|have|had|can|cannot|does|do|did|may|should|must)\b"
)
ADVICE = list(IDIOMS.values())


def _compiled(pattern: str) -> re.Pattern[str]:
    """A space of a pattern is any white space: texts are broken into lines."""
    return re.compile(pattern.replace(" ", r"\s+"))


IDIOM = _compiled("|".join(f"(?P<i{number}>{idiom})" for number, idiom in enumerate(IDIOMS)))
WHERE_FOR_IF = _compiled(CONDITION)


def prose(house: House) -> Iterator[Finding]:
    """Idioms of the table."""
    for source in house.sources:
        for line, text in texts(source):
            for match in IDIOM.finditer(text):
                advice = ADVICE[int((match.lastgroup or "i0")[1:])]
                quoted = " ".join(match[0].strip(" .:;!?\n").split())
                yield source.at(_line(line, text, match), f'"{quoted}": {advice}')


def conditions(house: House) -> Iterator[Finding]:
    """`where` for `if`. A place may keep its `where`."""
    for source in house.sources:
        for line, text in texts(source):
            for match in WHERE_FOR_IF.finditer(text):
                yield source.at(
                    _line(line, text, match), f'"{" ".join(match[0].split())}": if, unless it is a place'
                )


def _line(first: int, text: str, match: re.Match[str]) -> int:
    start = match.start() + len(match[0]) - len(match[0].lstrip(" .:;!?\n"))
    return first + text.count("\n", 0, start)


@cache
def texts(source: Source) -> list[tuple[int, str]]:
    """The prose of a file with its first lines: comments as blocks, and strings of more than one word."""
    found = [*_comments(source), *_strings(source)] if source.is_python else _lua_comments(source)
    return [(line, _without_code(text)) for line, text in found]


def _without_code(text: str) -> str:
    return re.sub(r"`[^`]*`", lambda match: "`" + "\n" * match[0].count("\n") + "`", text)


def _blocks(comments: Iterator[tuple[int, bool, str]]) -> list[tuple[int, str]]:
    """Comments (line, stands alone, text); those on lines that follow each other become one text."""
    blocks: list[tuple[int, str]] = []
    last = -1
    for line, alone, text in comments:
        if alone and line == last + 1:
            blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]}\n{text}")
        else:
            blocks.append((line, text))
        last = line if alone else -1
    return blocks


def _comments(source: Source) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline) if "#" in source.text else iter(())
    return _blocks(
        (token.start[0], token.line.lstrip().startswith("#"), token.string.lstrip("# "))
        for token in tokens
        if token.type == tokenize.COMMENT
    )


def _lua_comments(source: Source) -> list[tuple[int, str]]:
    found = ((number, re.search(r"--+ ?(.*)", line), line) for number, line in enumerate(source.lines, 1))
    return _blocks(
        (number, line.lstrip().startswith("--"), match[1]) for number, match, line in found if match
    )


def _strings(source: Source) -> list[tuple[int, str]]:
    return [
        (node.lineno, node.value)
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    ]
