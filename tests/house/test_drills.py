"""Drills: a new member of a list is added to a copy of the package where a developer would start.

The type checker or a test complains until the change is complete, and the complete change touches few files. docs/internals/changes.md
describes these changes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "qbull"


class Copy:
    """A copy of the package that can be changed, checked and run."""

    def __init__(self, root: Path) -> None:
        self.package = root / "qbull"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__", "assets"))

    def change(self, file: str, *replacements: tuple[str, str]) -> None:
        path = self.package / file
        text = path.read_text()
        for old, new in replacements:
            assert text.count(old) == 1, f"{old!r} is not in {file} once: adapt the drill"
            text = text.replace(old, new)
        path.write_text(text)

    def changed(self) -> list[str]:
        files = [path.relative_to(self.package) for path in self.package.rglob("*.py")]
        return [
            str(file)
            for file in sorted(files)
            if (self.package / file).read_text() != (PACKAGE / file).read_text()
        ]

    def type_errors(self, *files: str) -> str:
        """Errors of the type checker in these files. What they import besides is not looked at: that takes a minute."""
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-incremental",
            "--config-file=",
            "--follow-imports=skip",
        ]
        done = subprocess.run(
            [*command, *(f"qbull/{file}" for file in files)],
            cwd=self.package.parent,
            capture_output=True,
            text=True,
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout if done.returncode else ""

    def failures(self, tests: Path) -> set[str]:
        """The tests that fail with this copy."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            os.devnull,
            "-p",
            "no:cacheprovider",
            "--tb=no",
            str(tests),
        ]
        environment = os.environ | {
            "PYTHONPATH": str(self.package.parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        done = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return set(re.findall(r"^FAILED .*::(\w+)", done.stdout, flags=re.M))

    def run(self, code: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(self.package.parent)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_durability_level_is_one_object_in_one_file(copy: Copy) -> None:
    file = "core/durability.py"
    copy.change(
        file, ('Literal["fast", "durable", "replicated"', 'Literal["fast", "durable", "quorum", "replicated"')
    )

    assert '"assert_never" has incompatible type "Literal[\'quorum\']"' in copy.type_errors(file, "errors.py")

    copy.change(
        file,
        (
            '        case "replicated":\n',
            '        case "quorum":\n            return _QUORUM\n        case "replicated":\n',
        ),
        ("_STRICT = DurabilityProfile(\n", f"{QUORUM}_STRICT = DurabilityProfile(\n"),
    )

    assert copy.type_errors(file, "errors.py") == ""
    assert copy.run(QUORUM_WORKS).split() == ["True", "2", "True", "True", "True", "True"]
    assert copy.changed() == [file]


def test_a_durability_level_that_waits_for_another_copy_needs_its_command(copy: Copy) -> None:
    copy.change(
        "core/durability.py",
        ('Literal["none", "memory", "disk"]', 'Literal["none", "memory", "disk", "tape"]'),
    )

    errors = copy.type_errors("core/durability.py", "store/confirm.py", "errors.py")

    assert "core/durability.py" in errors and "store/confirm.py" in errors


def test_a_backoff_is_one_case_in_one_file(copy: Copy) -> None:
    file = "core/retry.py"
    copy.change(file, ('Literal["exponential", "fixed"]', 'Literal["exponential", "fixed", "linear"]'))

    assert '"assert_never" has incompatible type "Literal[\'linear\']"' in copy.type_errors(file, "errors.py")

    linear = '            case "linear":\n                return self.delay * (nth + 1)\n            case "fixed":\n'
    copy.change(file, ('            case "fixed":\n', linear))

    assert copy.type_errors(file, "errors.py") == ""
    assert copy.run(LINEAR_WORKS).splitlines() == [
        "6",
        '"exponential", "fixed" or "linear"',
        "True",
        "4 attempts, linear from 2 s",
    ]
    assert copy.changed() == [file]


def test_a_job_option_is_a_row_of_the_table_and_a_parameter(copy: Copy) -> None:
    root = copy.package.parent
    for file in ("tests/produce/test_options.py", "docs/guides/options.md"):
        (root / file).parent.mkdir(parents=True)
        shutil.copy(REPOSITORY / file, root / file)
    row = '    JobOption("tenant", "key", "Its tenant."),\n'
    copy.change("core/options.py", ("JOB_OPTIONS = (\n", f"JOB_OPTIONS = (\n{row}"))

    assert copy.failures(root / "tests") == {
        "test_python_has_every_option",
        "test_the_docstring_explains_every_option",
        "test_the_page_has_every_option",
    }

    trace = "    trace: str | None = None\n"
    copy.change("core/options.py", (trace, f"    tenant: str | None = None\n{trace}"))
    copy.change(
        "task.py",
        ("    ) -> Call[P, R]:\n", "        tenant: str | None = None,\n    ) -> Call[P, R]:\n"),
        (
            "            delay: seconds until",
            "            tenant: its tenant.\n            delay: seconds until",
        ),
        ("durability, unique, expires, weight)", "durability, unique, expires, weight, tenant)"),
    )
    page = root / "docs/guides/options.md"
    page.write_text(page.read_text().replace("| `delay` |", "| `tenant` | its tenant |\n| `delay` |", 1))

    assert copy.failures(root / "tests") == set()
    assert copy.changed() == ["core/options.py", "task.py"]


QUORUM = """
_QUORUM = DurabilityProfile(
    "quorum",
    meaning="an acknowledged job is on most replicas",
    flushes_own_disk=True,
    replica_copy="memory",
    confirmations=lambda replicas: replicas // 2 + 1,
    unmet=lambda facts: None,
)
"""
QUORUM_WORKS = """
from qbull.api.openapi import document
from qbull.cli.acl import print_acl
from qbull.config import check_durability
from qbull.core.durability import profile_of
from qbull.store.confirm import ConfirmedServer
from qbull.store.rights import AclScope, acl

server = ConfirmedServer(None, "quorum")
print(server.waits)
print(profile_of("quorum").confirmations(3))
print("+wait " in acl(["producer"], AclScope("p", durability="quorum"), "u"))
print(check_durability("quorum") == "quorum")
print(any("quorum" in getattr(one.type, "choices", ()) for one in print_acl.params))
print("quorum" in str(document()))
"""
LINEAR_WORKS = """
from qbull.api.openapi import document
from qbull.cli.live_settings import _text
from qbull.core.retry import Retry
from qbull.errors import ConfigError

retry = Retry(attempts=4, backoff="linear", delay=2)
print(format(retry.wait_before(4), "g"))
try:
    Retry(backoff="none")
except ConfigError as error:
    print(str(error).partition(": use ")[2].partition(",  or")[0].partition(", or give")[0])
print("linear" in str(document()))
print(_text(retry))
"""
