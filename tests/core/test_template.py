"""Templates: a job's id and key, made of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from qbull.core.codec import ArgumentTemplate, Signature
from qbull.errors import ArgumentsError, DeclarationError


@dataclass
class User:
    id: str
    names: list[str]


def greet(user: User, times: int, note: str = "") -> None: ...


SIGNATURE = Signature("greet", greet)
CALL: dict[str, Any] = {"user": User("u1", ["Ada"]), "times": 3, "note": ""}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("{times}", "3"),
        ("greet:{user.id}", "greet:u1"),
        ("{user.id}:{user.names[0]}", "u1:Ada"),
        ("{times:05d}", "00003"),
        ("{note!r}", "''"),
        ("{{{times}}}", "{3}"),
        ("always the same", "always the same"),
        (lambda user, times, note: f"{user.id}/{times}", "u1/3"),
        (lambda user, **_: user.id, "u1"),
    ],
)
def test_a_template_is_filled_from_the_arguments(rule: Any, text: str) -> None:
    assert ArgumentTemplate("id", rule, SIGNATURE).apply(CALL) == text


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{usr}", "names 'usr'; it may use user, times, note"),
        ("{usr.id}", "names 'usr'; it may use user, times, note"),
        ("{}", "it may use user, times, note"),
        ("{0}", "it may use user, times, note"),
        ("{user", "it may use user, times, note"),
        ("user}", "it may use user, times, note"),
        ("{user!x}", "it may use user, times, note"),
    ],
)
def test_a_template_that_can_never_work_is_refused_when_declared(rule: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        ArgumentTemplate("key", rule, SIGNATURE)

    assert str(refused.value).startswith(f'task "greet": its key "{rule}"')


def test_a_task_without_arguments_has_none_to_name() -> None:
    def tick() -> None: ...

    with pytest.raises(DeclarationError, match="it may use no argument"):
        ArgumentTemplate("id", "{time}", Signature("tick", tick))


@pytest.mark.parametrize("rule", ["{note}", "", lambda **_: "", lambda **_: None, lambda **_: 7])
def test_a_template_that_gives_no_text_is_refused_at_the_call(rule: Any) -> None:
    with pytest.raises(ArgumentsError, match=r'^task "greet": its id must be a text that is not empty'):
        ArgumentTemplate("id", rule, SIGNATURE).apply(CALL)


@pytest.mark.parametrize("rule", ["{user.name}", "{times[0]}", lambda user: user.id, lambda **_: 1 / 0])
def test_a_template_that_does_not_fit_this_call_says_why(rule: Any) -> None:
    with pytest.raises(ArgumentsError, match=r'^task "greet": its key cannot be made of these arguments: '):
        ArgumentTemplate("key", rule, SIGNATURE).apply(CALL)
