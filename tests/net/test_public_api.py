"""The public Python names and their signatures are as recorded."""

from __future__ import annotations

import importlib

import pytest
from goldens import compare
from public_api import MODULES, describe


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_as_recorded(module: str) -> None:
    compare(f"{module}.txt", describe(importlib.import_module(module)))
