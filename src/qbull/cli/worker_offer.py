"""The options `--label` and `--resource` of commands that run jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from qbull.core.demand import WorkerOffer, read_labels, read_resources


def with_offer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for labels and resources; the command gets them as `offer`."""

    @click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="NAME=VALUE",
        help="Label of this worker, such as gpu=a100. Tasks with labels run only on workers that have them.",
    )
    @click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME=N",
        help="Tokens of a resource that all workers on this host share, such as gpu=1.",
    )
    @functools.wraps(command)
    def with_offer(*, labels: tuple[str, ...], resources: tuple[str, ...], **rest: Any) -> Any:
        given = WorkerOffer(read_labels(labels, "--label"), read_resources(resources, "--resource"))
        return command(offer=given, **rest)

    return with_offer
