"""`qbull init`: a small project to start from. Its files are in starter/, as text with the names left open.

What is there already is never touched, and a project is there as a whole or not at all.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shlex
import sys
import unicodedata
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from qbull.errors import ConfigError

STARTER_FILES = {
    "README.md": "README.md.txt",
    "pyproject.toml": "pyproject.toml.txt",
    ".gitignore": "gitignore.txt",
    "$package/__init__.py": "package.py.txt",
    "$package/tasks.py": "tasks.py.txt",
    "$package/send.py": "send.py.txt",
    "tests/test_tasks.py": "test_tasks.py.txt",
}
"""Where each file of a project comes from."""

MAX_PACKAGE_NAME_CHARS = 40


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", help="What the package is called.  [default: as DIR]")
def init(directory: Path, name: str | None) -> None:
    """Write a small project to DIR to start from.

    A queue, three tasks, a program that enqueues, a test.

    \b
    Example:
      qbull init shop

    Files that are there already are not touched: if there is one in the way, nothing is written.
    """
    package = package_name(name or directory.resolve().name)
    texts = {directory / path: text for path, text in project(package).items()}
    for file in texts:
        if os.path.lexists(file):
            raise ConfigError(f"{file} is there already; nothing was written, choose another directory")
    _refuse_taken(package)
    write(texts)
    _say_next(directory, package)


def package_name(name: str) -> str:
    """A name for the package that Python and package indexes take; without accents, small, with underscores."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    package = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if (
        not package
        or package[0].isdigit()
        or keyword.iskeyword(package)
        or len(package) > MAX_PACKAGE_NAME_CHARS
    ):
        raise ConfigError(
            f'"{name}" cannot be the name of a package; give one of up to {MAX_PACKAGE_NAME_CHARS} letters and digits '
            "that begins with a letter: --name shop"
        )
    return package


def project(package: str) -> dict[str, str]:
    """The text of each file."""
    named = {"package": package, "project": package.replace("_", "-")}
    source = files("qbull.cli") / "starter"
    return {
        Template(path).substitute(named): Template((source / text).read_text("utf-8")).substitute(named)
        for path, text in STARTER_FILES.items()
    }


def write(texts: dict[Path, str]) -> None:
    """All of them, or none."""
    made: list[Path] = []
    try:
        for file, text in texts.items():
            for folder in reversed([folder for folder in file.parents if not folder.exists()]):
                folder.mkdir()
                made.append(folder)
            with file.open("x", encoding="utf-8") as new:
                made.append(file)
                new.write(text)
    except BaseException as error:
        for path in reversed(made):
            with suppress(OSError):  # of somebody who has put something there meanwhile
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            raise ConfigError(f"{error.filename}: {error.strerror}; nothing was written") from None
        raise


def _refuse_taken(package: str) -> None:
    """A package is found before a library of the same name, and whoever imports that would get it."""
    if package == "tests" or package in sys.stdlib_module_names or _is_installed(package):
        raise ConfigError(
            f'there is a module "{package}" already, which this package would hide; give another name: --name my_{package}'
        )


def _is_installed(package: str) -> bool:
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def _say_next(directory: Path, package: str) -> None:
    click.echo(f"{directory}: a project with a queue, three tasks and their tests. Next:")
    if directory.resolve() != Path.cwd():
        click.echo(f"  cd {shlex.quote(str(directory))}")
    steps = {
        'pip install -e ".[test]"': "once, in a virtual environment: qbull with its API, and pytest",
        f"qbull dev {package}.tasks:app": "server, worker, REST API and dashboard; reloads when you save",
        f"python -m {package}.send": "in a second terminal: enqueue some jobs and print their results",
        "python -m pytest": "the tests, on a real server that they start themselves",
    }
    for command, what in steps.items():
        click.echo(f"  {command:<{max(map(len, steps))}}  # {what}")
