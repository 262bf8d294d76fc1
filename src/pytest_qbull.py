"""The pytest plugin: fixtures around `qbull.testing`. It does nothing for a test that asks for none of them.

It is no part of the package because pytest imports it in every run of every project: importing qbull is left to the fixtures.
Which app is meant is said once, in the settings (`qbull_app = "shop:app"`) or by a fixture `qbull_app` of the project's own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import qbull
    from qbull import testing


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("qbull_app", 'the app that fixtures of qbull use, as "module:app"', default="")


@pytest.fixture
def qbull_app(pytestconfig: pytest.Config) -> qbull.App:
    """The project's app. Write a fixture of this name in your conftest.py to say it in code."""
    return app_named(pytestconfig.getini("qbull_app"), str(pytestconfig.rootpath))


def app_named(named: str, root: str) -> qbull.App:
    """The app "module:app"; modules in the root of the project are found too."""
    module, _, name = named.partition(":")
    if not module or not name:
        raise pytest.UsageError(
            f'qbull_app = "{named}": give "module:app" in the settings of pytest, or a fixture qbull_app'
        )
    if root not in sys.path:
        sys.path.insert(0, root)
    import qbull

    app = getattr(importlib.import_module(module), name, None)
    if not isinstance(app, qbull.App):
        raise pytest.UsageError(f'qbull_app = "{named}": {name} is no qbull.App of {module}')
    return app


@pytest.fixture
def qbull_inline(qbull_app: qbull.App) -> Iterator[testing.inline]:
    """Tasks run where they are enqueued, without a server."""
    from qbull import testing

    with testing.inline(qbull_app) as jobs:
        yield jobs


@pytest.fixture
def qbull_server(qbull_app: qbull.App) -> Iterator[testing.embedded]:
    """The app on a real, empty server, for synchronous and asynchronous tests."""
    from qbull import testing

    with testing.embedded(qbull_app) as server:
        yield server
