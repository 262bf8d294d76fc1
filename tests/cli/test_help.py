"""The help of `qbull` lists the commands by purpose, and an unknown command names the one that was meant."""

from __future__ import annotations

import subprocess
import sys

from shell import Shell, open_shell  # noqa: F401 - a fixture

from qbull.cli.command_table import COMMAND_GROUPS, COMMANDS, HIDDEN_COMMANDS


def test_the_commands_are_listed_by_purpose(shell: Shell) -> None:
    shown = shell.ok("--help")

    titles = [title for title in COMMAND_GROUPS if f"\n{title}:\n" in shown]
    assert titles == list(COMMAND_GROUPS)
    listed = sum(map(len, COMMAND_GROUPS.values()))
    assert len(COMMANDS) == listed + len(HIDDEN_COMMANDS), "no command is in two groups"


def test_an_unknown_command_names_the_one_that_was_meant(shell: Shell) -> None:
    ended = shell.run("stauts")

    assert ended.code == 2
    assert ended.err == 'qbull: no such command "stauts"; did you mean "stats"? See "qbull --help"\n'
    assert shell.run("xyzzy").err == 'qbull: no such command "xyzzy"; see "qbull --help"\n'


def test_python_runs_the_package_as_a_module() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "qbull", "--version"], capture_output=True, text=True, timeout=60, check=True
    )

    assert shown.stdout.startswith("qbull, version ")
