"""Programs import only what they need: a library call, `qbull --help`, the health check and the supervisor.

Imports are compared, not times: a time depends on the machine, and an import comes back unnoticed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import click
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures

import qbull
from qbull.cli.command_table import COMMANDS, HIDDEN_COMMANDS, SUMMARIES
from qbull.cli.main import qbull as command_line

RETURNED_VALUES = {"Counts"}
"""Dataclasses that calls return, beside the public names."""
OWN_DATACLASSES = {"Destination", "TlsSettings"}
"""Their fields have secrets or contexts, which a struct would compare and print."""
RARE_MODULES = {
    *("click", "rich", "starlette", "uvicorn", "httpx", "psycopg", "fsspec", "apprise"),
    *("ctypes", "difflib", "getpass", "html", "multiprocessing", "termios"),
    *("qbull.alerts", "qbull.api", "qbull.cli", "qbull.drain", "qbull.postgres", "qbull.views"),
    *("qbull.embedded.server", "qbull.schedules", "qbull.store.read.health", "qbull.worker.worker"),
    *("qbull.core.health_facts", "qbull.core.job_filter", "qbull.core.job_query", "qbull.manage.search"),
}
"""Modules that a program does not need to enqueue jobs."""
JOB_MODULES = {
    f"qbull.worker.{name}"
    for name in ("attempt", "cpu_pool", "durable", "fetch", "queue_runner", "settle", "slot", "worker")
}
"""Modules that run jobs."""
RECORDER = """
import atexit, json, pathlib, sys
from sample_app import app


def record() -> None:
    name = "child" if "worker_process.py" in sys.argv[0] else "supervisor"
    pathlib.Path(f"{name}.json").write_text(json.dumps(sorted(sys.modules)))


atexit.register(record)
"""


def imports_of(code: str) -> set[str]:
    """The modules that a new Python has imported after this code."""
    code = f"import sys\nbefore = set(sys.modules)\n{code}\nprint('\\n'.join(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_itself_imports_nothing_of_its_own() -> None:
    found = imports_of("import qbull")

    assert {name for name in found if name.startswith("qbull")} == {"qbull"}
    assert not found & {"asyncio", "dataclasses", "msgspec", "redis"}


def test_each_public_name_is_imported_from_its_home() -> None:
    checking = next(
        node for node in ast.parse(Path(qbull.__file__).read_text()).body if isinstance(node, ast.If)
    )
    told = {
        (alias.name, node.module)
        for node in checking.body
        if isinstance(node, ast.ImportFrom) and node.module not in ("qbull", "qbull.api.asgi")
        for alias in node.names
    }

    assert told == set(qbull._HOME_OF.items())
    assert sorted([*qbull._HOME_OF, "asgi"]) == sorted(qbull.__all__)
    assert all(getattr(qbull, name) is not None for name in qbull.__all__)
    assert {*qbull.__all__} <= {*dir(qbull)}


def test_a_module_of_the_package_is_imported_on_first_use() -> None:
    assert "qbull.testing" in imports_of("import qbull\nqbull.testing")


def test_a_program_that_enqueues_imports_nothing_rare() -> None:
    found = imports_of("from qbull import App\napp = App()\n@app.queue('mail').task\ndef send(): ...")

    assert found & RARE_MODULES == set()


def test_classes_that_every_program_imports_are_structs() -> None:
    code = """
import json, sys
from qbull import App

classes = {
    value
    for name, module in list(sys.modules.items())
    if name.startswith("qbull.")
    for value in list(vars(module).values())
    if isinstance(value, type) and value.__module__.startswith("qbull.")
}
print(json.dumps([each.__name__ for each in classes if "__dataclass_fields__" in vars(each)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(json.loads(done.stdout)) - {*qbull.__all__} == RETURNED_VALUES | OWN_DATACLASSES


def test_the_help_imports_no_command() -> None:
    found = imports_of(
        "import io, contextlib\nfrom qbull.cli.main import qbull\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n"
        "    qbull.main(['--help'])\n"
        "assert 'Run jobs of the app' in out.getvalue()"
    )

    own = {name for name in found if name.startswith("qbull")}
    assert own == {
        *("qbull", "qbull.cli", "qbull.cli.main", "qbull.cli.command_table", "qbull.cli.error_line"),
        *("qbull.errors", "qbull.observe", "qbull.observe.log"),
    }
    assert not found & {"asyncio", "dataclasses", "msgspec", "redis", "rich"}


def test_the_summaries_of_the_help_are_those_of_the_commands() -> None:
    context = click.Context(command_line)
    found = {name: command_line.get_command(context, name) for name in COMMANDS}

    assert {name for name, command in found.items() if command and command.hidden} == {*HIDDEN_COMMANDS}
    for name, summary in SUMMARIES.items():
        command = found[name]
        assert command is not None and command.help is not None and command.short_help is None
        assert " ".join(command.help.split("\n\n")[0].split()) == summary


def test_the_health_check_imports_nothing() -> None:
    assert imports_of("import qbull_alive") <= {"qbull_alive", "time"}


async def test_the_supervisor_imports_nothing_that_runs_jobs(shell: Shell, sample: SampleApp) -> None:
    (shell.directory / "recorder.py").write_text(RECORDER)
    worker = shell.start("worker", "recorder:app")
    await (await sample.send.enqueue(to="ada")).result(30)
    worker.terminate()
    assert worker.wait(30) == 0

    supervisor, child = (
        set(json.loads((shell.directory / f"{name}.json").read_text())) for name in ("supervisor", "child")
    )
    assert supervisor & (JOB_MODULES | RARE_MODULES - {"click", "qbull.cli", "qbull.alerts"}) == set()
    assert child >= JOB_MODULES
    assert child & {"click", "rich", "qbull.cli.main", "qbull.worker.process.supervisor"} == set()
