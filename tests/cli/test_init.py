"""init: a project as a whole or not at all, under a name that Python takes. That it works is in tests/guide/test_developing.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Shell, open_shell  # noqa: F401 - one is a fixture

from qbull.cli import init
from qbull.errors import ConfigError
from syntax_tree import parse_source


def everything(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("name", ["README.md", ".gitignore", "kiosk/tasks.py", "tests/test_tasks.py"])
def test_a_file_that_is_in_the_way_is_named_and_nothing_is_written(shell: Shell, name: str) -> None:
    file = shell.directory / "kiosk" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")

    said = shell.refused("init", "kiosk")

    assert said == f"kiosk/{name} exists already; nothing was written, choose another directory"
    assert everything(shell.directory) == {f"kiosk/{name}": "mine"}


def test_it_goes_into_a_directory_with_other_files_and_into_this_one(shell: Shell) -> None:
    (shell.directory / "LICENSE").write_text("mine")

    said = shell.ok("init", ".", "--name", "web-shop")

    written = everything(shell.directory)
    assert set(written) == {
        *("LICENSE", "README.md", "pyproject.toml", ".gitignore", "tests/test_tasks.py"),
        *("web_shop/__init__.py", "web_shop/tasks.py", "web_shop/send.py"),
    }
    assert written["LICENSE"] == "mine"
    assert "qbull dev web_shop.tasks:app" in said and "cd " not in said


def test_what_cannot_be_written_leaves_nothing(shell: Shell) -> None:
    (shell.directory / "kiosk").mkdir()
    (shell.directory / "kiosk/tests").touch()  # where a directory belongs
    (shell.directory / "file").touch()

    assert shell.refused("init", "kiosk").endswith("nothing was written")
    assert shell.refused("init", "file/kiosk").endswith("nothing was written")

    assert everything(shell.directory) == {"kiosk/tests": "", "file": ""}
    assert [path.name for path in (shell.directory / "kiosk").iterdir()] == ["tests"]


@pytest.mark.parametrize(
    ("name", "package"),
    [("shop", "shop"), ("My Shop", "my_shop"), ("tienda-ñandú 2.0", "tienda_nandu_2_0"), ("_x_", "x"), ("None!", "none"), ("x" * 40, "x" * 40)],
)  # fmt: skip
def test_odd_names_become_packages(name: str, package: str) -> None:
    assert init.package_name(name) == package
    for path, text in init.project(package).items():
        assert "$" not in path + text
        if path.endswith(".py"):
            parse_source(text)


@pytest.mark.parametrize("name", ["", "2shops", "class", "商店", "..", "x" * 41])
def test_names_that_cannot_be_packages_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be the name of a package.*--name shop"):
        init.package_name(name)


@pytest.mark.parametrize("name", ["email", "click", "tests", "qbull"])
def test_a_package_hides_no_module(shell: Shell, name: str) -> None:
    said = shell.refused("init", name)

    assert said.startswith(f'a module "{name}" exists already') and said.endswith(f"--name my_{name}")
    assert everything(shell.directory) == {}
