"""Find the app that a command is about: MODULE:APP, or only the server."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

from qbull.app import App
from qbull.errors import ConfigError


def load_app(path: str) -> App:
    """`shop.tasks:app`, imported from the current directory."""
    module_name, _, name = path.partition(":")
    if not module_name:
        raise ConfigError(f'"{path}": give MODULE:APP, for example shop.tasks:app')
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise ConfigError(f'"{path}": there is no module "{error.name}" here ({os.getcwd()})') from None
        raise
    except ConfigError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise ConfigError(f'"{path}": its import failed: {type(error).__name__}: {error}') from None
    app = getattr(module, name or "app", None)
    if not isinstance(app, App):
        found = ", ".join(key for key, value in vars(module).items() if isinstance(value, App)) or "none"
        raise ConfigError(f'"{path}": "{name or "app"}" is not a qbull.App; the module has: {found}')
    return app
