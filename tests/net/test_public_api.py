"""The public Python names and their signatures are those that were recorded."""

from __future__ import annotations

import importlib

import pytest
from goldens import compare
from public_api import describe

MODULES = [
    "qbull",
    "qbull.compat.celery",
    "qbull.compat.rq",
    "qbull.contrib.django",
    "qbull.postgres",
    "qbull.testing",
]
"""The modules that users import, as the guides say."""


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_as_recorded(module: str) -> None:
    compare(f"{module}.txt", describe(importlib.import_module(module)))
