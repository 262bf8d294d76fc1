"""What `make dist` has built, as users install it: in an empty environment, without Node, with the locked versions.

The wheel on every Python of the machine (pythons.py finds them), the source distribution on the first of these:
install it, write every template, run the demo to its end, start the REST server and fetch its page. Then the
templates run their own tests there (installed_templates.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from clean_runs import locked_versions, make_environment, run, without_node
from installed_templates import TEMPLATES, databases, run_tests
from pythons import Interpreter, find_pythons, report

ROOT = Path(__file__).resolve().parents[2]
APP = """
import qbull

app = qbull.App()
orders = app.queue("orders")


@orders.task
async def charge(cents: int) -> int:
    return cents
"""


def main() -> None:
    files = {file.suffix: file for file in (ROOT / "dist").glob("qbull-*")}
    if sorted(files) != [".gz", ".whl"]:
        sys.exit(f"dist/ must have one wheel and one source distribution of qbull: {sorted(files)}")
    pythons = find_pythons()
    print(report(pythons), flush=True)
    check_source(files[".gz"], pythons[0])
    with databases() as new_database:
        for python in pythons:
            check_wheel(files[".whl"], python, new_database(), apart=python is pythons[0])


def check_source(file: Path, python: Interpreter) -> None:
    """The source distribution, with everything in the lock, whose hashes pip compares."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="qe") as name:
        directory = Path(name)
        env = without_node(directory / "env" / "bin")
        pip = make_environment(python, directory / "env")
        for lock in ("run", "build"):
            requirements = str(ROOT / "requirements" / f"{lock}.txt")
            run(*pip, "install", "--require-hashes", "-r", requirements, env=env, cwd=directory)
        run(*pip, "install", "--no-deps", "--no-build-isolation", str(file), env=env, cwd=directory)
        play(["qbull"], env, directory)
    tell(f"{file.name}, Python {python.version}: installed, ran, served its page", started)


def check_wheel(file: Path, python: Interpreter, database: str, *, apart: bool) -> None:
    """The wheel with only what the REST API needs, then the templates that it has written.

    `apart` gives each template an environment with only what its own requirements name, so a missing one is found.
    That takes a while, so one Python is enough; on the others, the templates share the environment of the wheel.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="qe") as name:
        directory = Path(name)
        env = without_node(directory / "env" / "bin")
        (directory / "constraints.txt").write_text(locked_versions())
        pip = make_environment(python, directory / "env")
        locked = ("install", "--no-compile", "-c", str(directory / "constraints.txt"))
        run(*pip, *locked, f"{file}[api]", env=env, cwd=directory)
        play(["qbull"], env, directory)
        tell(f"{file.name}, Python {python.version}: installed, ran, served its page", started)
        for template in TEMPLATES:
            started = time.monotonic()
            into = directory / (f"env-{template}" if apart else "env")
            if apart:
                make_environment(python, into, with_pip=False)
            wanted = (str(file), "-r", f"{template}/requirements-test.txt")
            run(*pip, "--python", str(into / "bin" / "python"), *locked, *wanted, env=env, cwd=directory)
            env = {**without_node(into / "bin"), "QBULL_DATABASE_URL": database}
            summary = run_tests(directory / template, env)
            tell(f"template {template}, Python {python.version}: {summary}", started)


def tell(what: str, started: float) -> None:
    print(f"{what}; {time.monotonic() - started:.0f} s", flush=True)


def play(qbull: list[str], env: Mapping[str, str], directory: Path) -> None:
    """A new project, the demo to its end, then a server that is asked for its page."""
    assert shutil.which("node", path=env["PATH"]) is None, "Node is here"
    assert "qbull dev kiosk.tasks:app" in run(*qbull, "init", "kiosk", env=env, cwd=directory)
    for template in TEMPLATES:
        run(*qbull, "init", template, "--template", template, env=env, cwd=directory)
        assert (directory / template / "tests").is_dir() and (directory / template / ".env.example").is_file()
    said = run(*qbull, "demo", "--once", env=env, cwd=directory)
    assert "order: kept for each of 12 accounts" in said, said
    (directory / "shop.py").write_text(APP)
    with (directory / "log").open("w+") as log:
        server = subprocess.Popen(
            [*qbull, "serve", "shop:app", "--port", "0"],
            env={**env, "QUEUES_UI_PASS": "a long password"}, cwd=directory, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            page = fetch(address(directory / "log", server))
        finally:
            server.terminate()
            server.wait(30)
    assert "<title>" in page and "/assets/" in page, page[:500]


def address(log: Path, server: subprocess.Popen[bytes]) -> str:
    """Where it says that it serves."""
    while server.poll() is None:
        for word in log.read_text().replace(";", " ").split():
            if word.startswith("http://") and word.endswith("/ui"):
                return word
        time.sleep(0.02)
    raise AssertionError(f"qbull serve ended: {log.read_text()}")


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    main()
