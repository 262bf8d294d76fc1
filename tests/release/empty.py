"""What `make dist` has built, as somebody who installs it has it: in an empty environment, without Node, with the versions of the lock.

For the wheel and for the source distribution: install it, begin a project, run the demo to its end, start the REST server and ask it for its page.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Mapping
from pathlib import Path

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
    files = sorted((ROOT / "dist").glob("qbull-*"))
    kinds = sorted(file.suffix for file in files)
    if kinds != [".gz", ".whl"]:
        sys.exit(f"dist/ must have one wheel and one source distribution of qbull: {kinds}")
    for file in files:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="qe") as directory:
            check(file, Path(directory))
        print(f"{file.name}: installed, ran, served its page; {time.monotonic() - began:.0f} s")


def check(file: Path, directory: Path) -> None:
    venv.create(directory / "env", with_pip=True)
    env = without_node(directory / "env" / "bin")
    pip = [
        str(directory / "env/bin/python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    for lock in ("run", "build") if file.suffix == ".gz" else ("run",):
        run(
            *pip, "--require-hashes", "-r", str(ROOT / "requirements" / f"{lock}.txt"), env=env, cwd=directory
        )
    run(*pip, "--no-deps", "--no-build-isolation", str(file), env=env, cwd=directory)
    play(["qbull"], env, directory)


def play(qbull: list[str], env: Mapping[str, str], directory: Path) -> None:
    """A new project, the demo to its end, then a server that is asked for its page."""
    assert shutil.which("node", path=env["PATH"]) is None, "Node is here"
    assert "qbull dev kiosk.tasks:app" in run(*qbull, "init", "kiosk", env=env, cwd=directory)
    for template in ("orders", "schedulers", "platform", "chat", "agent"):
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


def without_node(*first: Path) -> dict[str, str]:
    """An environment with nothing of the developer's own, and a PATH on which there is no Node."""
    paths = [
        path
        for path in os.environ["PATH"].split(os.pathsep)
        if not any((Path(path) / name).exists() for name in ("node", "npm"))
    ]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "UV_", "SSL_", "LANG", "HOME", "TMPDIR"))
        or name.lower().endswith("_proxy")
    }
    return {**kept, "PATH": os.pathsep.join([*map(str, first), *paths])}


def run(*command: str, env: Mapping[str, str], cwd: Path) -> str:
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
