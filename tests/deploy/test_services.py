"""deploy/systemd and deploy/Procfile: units that systemd takes, with the variables and options of qbull."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reading import AFTER_GRACE, DEPLOY, READ, parsed, unit, variables

from needed_tools import needs_tool
from qbull.core.sharing import make_sharing
from qbull.environment import read_environment

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
KNOWN = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        "Type",
        "NotifyAccess",
        "WatchdogSec",
        "EnvironmentFile",
        "Environment",
        "WorkingDirectory",
        "ExecStart",
        "KillMode",
        "TimeoutStopSec",
        "Restart",
        "RestartSec",
        "User",
        "UMask",
        "NoNewPrivileges",
        "CapabilityBoundingSet",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateUsers",
        "ProtectSystem",
        "ProtectHome",
        "ProtectClock",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectControlGroups",
        "ProtectProc",
        "RemoveIPC",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
        "SystemCallArchitectures",
        "SystemCallFilter",
        "SystemCallErrorNumber",
    },
    "Install": {"WantedBy"},
}
REPEATED = {"SystemCallFilter"}
"""Settings whose lines add up."""
MAX_EXPOSURE = 3.0


def shared() -> dict[str, str]:
    text = (DEPLOY / "systemd" / "worker.env").read_text()
    return variables([line for line in text.splitlines() if not line.startswith("#")])


def command(path: Path) -> list[str]:
    [line] = unit(path)["Service"]["ExecStart"]
    program, *arguments = shlex.split(line)
    assert program == "/opt/qbull/bin/qbull"
    return arguments


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_only_what_systemd_knows(path: Path) -> None:
    found = unit(path)

    assert {section: set(names) - KNOWN[section] for section, names in found.items()} == {
        "Unit": set(),
        "Service": set(),
        "Install": set(),
    }
    often = {name for names in found.values() for name, values in names.items() if len(values) > 1}
    assert often <= REPEATED


@needs_tool(shutil.which("systemd-analyze"), "systemd is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_it(path: Path, tmp_path: Path) -> None:
    text = path.read_text().replace("/opt/qbull/bin/qbull", sys.executable)
    copy = tmp_path / path.name.replace("@.", "@3.")
    copy.write_text(text)

    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)

    assert [line for line in (done.stdout + done.stderr).splitlines() if path.stem.rstrip("@") in line] == []


@needs_tool(shutil.which("systemd-analyze"), "systemd is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_rates_its_exposure_as_low(path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", path],
        capture_output=True,
        text=True,
        timeout=60,
    )

    rated = re.search(r"Overall exposure level for \S+: (\d+\.\d)", done.stdout)
    assert rated is not None, done.stdout + done.stderr
    assert float(rated[1]) < MAX_EXPOSURE


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_command_and_its_variables_are_those_of_qbull(path: Path) -> None:
    service = unit(path)["Service"]
    env = shared() | variables([line.replace("%i", "3") for line in service.get("Environment", [])])
    name, options = parsed(command(path))

    assert name == "worker"
    assert set(env) <= READ
    read = read_environment(env)
    assert read.partitions == 16
    assert read.sharing.mode == ("static" if "@" in path.name else "auto")
    assert read.sharing.instance == (3 if "@" in path.name else 0)
    make_sharing(
        options["sharing"], options["partitions_per_pod"], options["instance_id"], options["instance_count"]
    )


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_time_to_stop(path: Path) -> None:
    service = unit(path)["Service"]
    _, options = parsed(command(path))

    assert int(service["TimeoutStopSec"][0]) >= options["grace"] + AFTER_GRACE
    assert service["KillMode"] == ["mixed"], "the parent passes the signal on"


def procfile() -> dict[str, list[str]]:
    """The arguments of qbull for each kind of process, with the variables at their defaults."""
    found = {}
    for line in (DEPLOY / "Procfile").read_text().splitlines():
        match = re.fullmatch(r"([a-z]+): qbull (\S.*)", line)
        assert match, line
        found[match.group(1)] = shlex.split(re.sub(r"\$\{\w+:-(\w+)\}", r"\1", match.group(2)))
    return found


def test_the_procfile_starts_a_worker_and_a_server() -> None:
    commands = {name: parsed(arguments) for name, arguments in procfile().items()}

    assert {name: command for name, (command, _) in commands.items()} == {"web": "serve", "worker": "worker"}
    assert commands["worker"][1]["processes"] == 2
    assert commands["web"][1]["port"] == 3050
