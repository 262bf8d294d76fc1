"""Flask: run tasks in the context of a Flask application, and find the qbull app in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

import flask

from qbull.app import App
from qbull.errors import ConfigError
from qbull.middleware import Middleware
from qbull.worker.current import CurrentJob

EXTENSION_NAME = "qbull"

__all__ = ["FlaskContext", "init_app", "qbull_app"]


class FlaskContext(Middleware):
    """`qbull.App(middleware=[FlaskContext("shop:create_app")])`: each task runs in an application context of
    its own.

    Args:
        application: a Flask application, a factory, or the path of either. The factory is called when the
            first job runs.
    """

    def __init__(self, application: flask.Flask | Callable[[], flask.Flask] | str) -> None:
        self._given = application
        self._application: flask.Flask | None = None
        self._making = threading.RLock()

    @contextmanager
    def around_call(self, job: CurrentJob) -> Iterator[None]:
        """Enter the context in the thread of the task: resources opened there must be closed there.

        Args:
            job: the running job.
        """
        if flask.has_app_context():  # A test that runs tasks inline is already in a context.
            yield
            return
        with self._application_of_all().app_context():
            yield

    def _application_of_all(self) -> flask.Flask:
        with self._making:
            if self._application is None:
                self._application = self._made()
            return self._application

    def _made(self) -> flask.Flask:
        found = _imported(self._given) if isinstance(self._given, str) else self._given
        made = found if isinstance(found, flask.Flask) or not callable(found) else found()
        if not isinstance(made, flask.Flask):
            raise ConfigError(f"FlaskContext({self._given!r}): gives {made!r}, no Flask application")
        return made


def init_app(application: flask.Flask, app: App) -> None:
    """Let code in the context of a Flask application find the qbull app: `qbull_app()`.

    Args:
        application: the Flask application.
        app: the qbull app.
    """
    application.extensions[EXTENSION_NAME] = app


def qbull_app() -> App:
    """The app of the current Flask application."""
    app = flask.current_app.extensions.get(EXTENSION_NAME)
    if not isinstance(app, App):
        raise ConfigError("no qbull app belongs to this Flask application; call init_app(application, app)")
    return app


def _imported(where: str) -> object:
    module, _, name = where.partition(":")
    found = getattr(import_module(module), name, None) if name else None
    if found is None:
        raise ConfigError(
            f'FlaskContext("{where}"): not found; give "module:application" or "module:factory"'
        )
    return found
