"""Demands: the labels and resources that a task asks for, and the offer of a worker.

A worker runs only jobs of tasks whose demand its offer meets. docs/decisions/0025 has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from qbull.core.digits import whole_number
from qbull.core.ids import check_name
from qbull.errors import ConfigError, DeclarationError, QbullError

AskedLabels = Mapping[str, str | Sequence[str]]
"""Labels by name: the value that a worker must have, or several of which it must have one."""
AskedResources = Mapping[str, int]
"""How many tokens of each resource a job holds while it runs."""

MAX_RESOURCE_TOKENS = 1000
"""Tokens of one resource on one host."""
_LABEL_VALUE = re.compile(r"[A-Za-z0-9._:/+-]{1,100}")


class WorkerOffer(msgspec.Struct, frozen=True):
    """The labels of a worker, and the tokens of each resource on its host."""

    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    resources: Mapping[str, int] = msgspec.field(default_factory=dict)

    def extended(self, other: WorkerOffer) -> WorkerOffer:
        """This offer with the labels and resources of another one, which win."""
        return WorkerOffer({**self.labels, **other.labels}, {**self.resources, **other.resources})


class TaskDemand(msgspec.Struct, frozen=True):
    """The labels and resources that a task asks of a worker. The values of a label are alternatives."""

    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.resources)

    def __str__(self) -> str:
        """For people: `label gpu=a100 or h100, resource gpu=1`."""
        labels = [f"label {name}={' or '.join(values)}" for name, values in self.labels]
        return ", ".join([*labels, *(f"resource {name}={count}" for name, count in self.resources)])

    def is_met_by(self, offer: WorkerOffer) -> bool:
        """Whether a worker with this offer may run the task, as soon as its tokens are free."""
        return all(offer.labels.get(name) in values for name, values in self.labels) and all(
            offer.resources.get(name, 0) >= count for name, count in self.resources
        )


NO_DEMAND = TaskDemand()


def make_demand(what: str, labels: AskedLabels | None, resources: AskedResources | None) -> TaskDemand:
    """The demand of a task or a queue.

    Args:
        what: The task or the queue, for error messages.
        labels: The labels that a worker must have.
        resources: The tokens that a job holds while it runs.
    """
    for name, given in (("labels", labels), ("resources", resources)):
        if given is not None and not isinstance(given, Mapping):
            raise DeclarationError(f'{what}: {name}={given!r}: give a dict, for example {{"gpu": …}}')
    asked = []
    for name, value in sorted((labels or {}).items()):
        values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
        if not values:
            raise DeclarationError(f'{what}: label "{name}" has no value; give one, or leave the label out')
        asked.append((name, tuple(_label(name, one, DeclarationError) for one in values)))
    held = [
        (name, _tokens(name, count, DeclarationError)) for name, count in sorted((resources or {}).items())
    ]
    return TaskDemand(tuple(asked), tuple(held))


def make_offer(labels: Mapping[str, str] | None, resources: Mapping[str, int] | None) -> WorkerOffer:
    """The offer of a worker. Refuses names and values that no task could ask for."""
    return WorkerOffer(
        {name: _label(name, value, ConfigError) for name, value in (labels or {}).items()},
        {name: _tokens(name, count, ConfigError) for name, count in (resources or {}).items()},
    )


def read_labels(texts: Iterable[str], source: str) -> dict[str, str]:
    """Labels from texts such as `gpu=a100`, of the option or the variable `source`."""
    return make_offer(_pairs(texts, source, "gpu=a100"), None).labels  # type: ignore[return-value]


def read_resources(texts: Iterable[str], source: str) -> dict[str, int]:
    """Resources from texts such as `gpu=2`."""
    found = {}
    for name, count in _pairs(texts, source, "gpu=1").items():
        number = whole_number(count)
        if number is None:
            raise ConfigError(
                f'{source} "{name}={count[:100]}": give a whole number of tokens, such as {name}=1'
            )
        found[name] = _tokens(name, number, ConfigError)
    return found


def _pairs(texts: Iterable[str], source: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f'{source} "{text}": give NAME=VALUE, for example {example}')
        if name in found:
            raise ConfigError(f'{source}: "{name}" is there twice; give it one value')
        found[name] = value
    return found


def _label(name: object, value: object, error: type[QbullError]) -> str:
    check_name("label", name)  # type: ignore[arg-type]
    if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
        raise error(f'label "{name}": {value!r}: its value has 1 to 100 letters, digits and . _ : / + -')
    return value


def _tokens(name: object, count: object, error: type[QbullError]) -> int:
    check_name("resource", name)  # type: ignore[arg-type]
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_RESOURCE_TOKENS:
        raise error(f'resource "{name}": {count!r}: give a whole number from 1 to {MAX_RESOURCE_TOKENS:,}')
    return count
