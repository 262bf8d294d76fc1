"""`qbull init`: write a small project to start from, or a complete system (templates.py).

The files of the small project are in starter/.

Existing files are never changed, and either all files of the project are written or none.
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

from qbull.cli.templates import TEMPLATES, template_texts
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
"""The template of each file of a project."""

MAX_PACKAGE_NAME_CHARS = 40


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the Python package.  [default: the name of DIR]")
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    help="Write a complete system with tests and a deploy recipe instead.",
)
def init(directory: Path, name: str | None, template: str | None) -> None:
    """Create a project in DIR to start from.

    It is small: a queue, three tasks, a program that enqueues jobs, and tests. --template writes a complete
    system instead: orders (an API with PostgreSQL), schedulers (cron jobs of several servers), platform
    (mail, Slack and files for several tenants), chat (messages in order by phone number) or agent (an AI
    agent with tools and human approval).

    \b
    Example:
      qbull init shop
      qbull init orders --template orders

    Existing files are not changed: if one of them is in the way, nothing is written.
    """
    if template is not None:
        if name is not None:
            raise ConfigError("--name is for the small project; a template has its own module names")
        _write_new(directory, template_texts(template))
        _print_template_steps(directory, template)
        return
    package = package_name(name or directory.resolve().name)
    _refuse_taken(package)
    _write_new(directory, project(package))
    _print_next_steps(directory, package)


def _write_new(directory: Path, texts: dict[str, str]) -> None:
    """Write the files, unless one of them exists."""
    for path in texts:
        if os.path.lexists(directory / path):
            raise ConfigError(
                f"{directory / path} exists already; nothing was written, choose another directory"
            )
    write({directory / path: text for path, text in texts.items()})


def package_name(name: str) -> str:
    """Turn a name into one for a Python package: ASCII, lower case, with underscores."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    package = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    if (
        not package
        or package[0].isdigit()
        or keyword.iskeyword(package)
        or len(package) > MAX_PACKAGE_NAME_CHARS
    ):
        raise ConfigError(
            f'"{name}" cannot be the name of a package; choose one with --name that starts with a letter '
            f"and has at most {MAX_PACKAGE_NAME_CHARS} letters and digits, for example --name shop"
        )
    return package


def project(package: str) -> dict[str, str]:
    """Return the text of each file by its path."""
    names = {"package": package, "project": package.replace("_", "-")}
    source = files("qbull.cli") / "starter"
    return {
        Template(path).substitute(names): Template((source / text).read_text("utf-8")).substitute(names)
        for path, text in STARTER_FILES.items()
    }


def write(texts: dict[Path, str]) -> None:
    """Write all files, or none of them."""
    created: list[Path] = []
    try:
        for file, text in texts.items():
            for folder in reversed([folder for folder in file.parents if not folder.exists()]):
                folder.mkdir()
                created.append(folder)
            with file.open("x", encoding="utf-8") as new:
                created.append(file)
                new.write(text)
    except BaseException as error:
        for path in reversed(created):
            # A directory may have got other files meanwhile; it stays.
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            raise ConfigError(f"{error.filename}: {error.strerror}; nothing was written") from None
        raise


def _refuse_taken(package: str) -> None:
    """Refuse a name that would hide an installed module: Python finds the package of the project first."""
    if package == "tests" or package in sys.stdlib_module_names or _is_installed(package):
        raise ConfigError(
            f'a module "{package}" exists already, and this package would hide it; '
            f"choose another name with --name my_{package}"
        )


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def _print_next_steps(directory: Path, package: str) -> None:
    click.echo(f"{directory}: created a project with a queue, three tasks and their tests. Next steps:")
    steps = {
        'pip install -e ".[test]"': "once, in a virtual environment: install qbull with its API, and pytest",
        f"qbull dev {package}.tasks:app": "run server, worker, REST API and dashboard; reload when you save",
        f"python -m {package}.send": "in a second terminal: enqueue some jobs and print their results",
        "python -m pytest": "run the tests, on a real server that they start themselves",
    }
    _print_steps(directory, steps)


def _print_template_steps(directory: Path, template: str) -> None:
    click.echo(f"{directory}: created {TEMPLATES[template]}. Next steps:")
    steps = {
        "pip install -r requirements-test.txt": "once, in a virtual environment",
        "cp .env.example .env": "the settings; honcho reads them",
        "python -m pytest": "run the tests",
        "less README.md": "which servers it needs, how to run and deploy it",
    }
    _print_steps(directory, steps)


def _print_steps(directory: Path, steps: dict[str, str]) -> None:
    if directory.resolve() != Path.cwd():
        click.echo(f"  cd {shlex.quote(str(directory))}")
    for command, explanation in steps.items():
        click.echo(f"  {command:<{max(map(len, steps))}}  # {explanation}")
