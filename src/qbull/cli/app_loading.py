"""Find the app of MODULE:APP."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from qbull.app import App
from qbull.errors import ConfigError


def load_app(path: str) -> App:
    """`shop.tasks:app`, imported from the current directory."""
    module_name, _, name = path.partition(":")
    name = name or "app"
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigError(f'"{path}": give MODULE:APP, for example shop.tasks:app')
    module = _import(path, module_name)
    app = getattr(module, name, None)
    if not isinstance(app, App):
        found = ", ".join(key for key, value in vars(module).items() if isinstance(value, App)) or "none"
        raise ConfigError(f'"{path}": "{name}" is not a qbull.App; the module has: {found}')
    app._loaded()
    return app


def _import(path: str, module: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        if (
            isinstance(error, ModuleNotFoundError)
            and error.name
            and f"{module}.".startswith(f"{error.name}.")
        ):
            raise ConfigError(f'"{path}": there is no module "{error.name}" in {os.getcwd()}') from None
        raise ConfigError(
            f'"{path}": its import failed: {type(error).__name__}: {error}{_where(error)}'
        ) from error


def _where(error: BaseException) -> str:
    """The user's own line: the last one that is not the import machinery's."""
    if isinstance(error, SyntaxError):  # says so itself
        return ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
