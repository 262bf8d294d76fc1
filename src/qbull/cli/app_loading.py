"""Load the app that MODULE:APP names."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from qbull.app import App
from qbull.errors import ConfigError


def load_app(path: str) -> App:
    """Import an app such as `shop.tasks:app`. Modules of the current directory are found too."""
    module_name, _, name = path.partition(":")
    name = name or "app"
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigError(f'"{path}" is not of the form MODULE:APP, for example shop.tasks:app')
    module = _import(path, module_name)
    app = getattr(module, name, None)
    if not isinstance(app, App):
        apps = ", ".join(key for key, value in vars(module).items() if isinstance(value, App)) or "none"
        raise ConfigError(f'"{path}": "{name}" is not a qbull.App; apps in this module: {apps}')
    with _explained(path, module_name):
        app._loaded()
    return app


def _import(path: str, module: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with _explained(path, module):
        return importlib.import_module(module)


@contextmanager
def _explained(path: str, module: str) -> Iterator[None]:
    """Turn an error of an import into one line that names the file and the line."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        if (
            isinstance(error, ModuleNotFoundError)
            and error.name
            and f"{module}.".startswith(f"{error.name}.")
        ):
            raise ConfigError(f'"{path}": no module "{error.name}" in {os.getcwd()}') from None
        raise ConfigError(
            f'"{path}": the import failed: {type(error).__name__}: {error}{_location(error)}'
        ) from error


def _location(error: BaseException) -> str:
    """Return the last line on the way to the error that is not part of the import machinery."""
    # The text of a SyntaxError names its file and line already.
    if isinstance(error, SyntaxError):
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 2 else ""
