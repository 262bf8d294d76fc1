"""Run the tests on every Python of this machine, and on the oldest of these with Redis 7.0: `make matrix`.

pythons.py finds the Pythons; each gets an environment of its own in build/matrix, with the locked versions. SERVERS
names the servers: "embedded" is the Valkey that qbull installs, the newest that it knows; "redis-7.0" is the oldest
server that it supports, REDIS_SERVER or redis-server on PATH. The arguments are those of pytest.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from pythons import Interpreter, find_pythons, report

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
LOCK = ROOT / "requirements" / "dev.txt"
PYTEST = ("-m", "pytest", "-n", "4", "--dist", "loadgroup", "--no-loadscope-reorder")
SERVERS = ("embedded", "redis-7.0")


def main(arguments: list[str]) -> None:
    """Every Python with the embedded server, the first one with each other server. Fails after all have run."""
    servers = shlex.split(os.environ.get("SERVERS", "")) or list(SERVERS)
    pythons = find_pythons()
    print(report(pythons), flush=True)
    runs = [
        (python, server)
        for server in servers
        for python in (pythons if server == "embedded" else pythons[:1])
    ]
    environments = {server: server_environment(server) for server in servers}
    failed = []
    for python, server in runs:
        name = f"Python {python.version}, {server}"
        print(f"== {name}", flush=True)
        started = time.monotonic()
        command = [str(install(python)), *PYTEST, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | environments[server], check=False)
        print(f"== {name}: ended with {done.returncode}; {time.monotonic() - started:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


def server_environment(server: str) -> dict[str, str]:
    """What tells the tests which server to start."""
    if server == "embedded":
        return {"QBULL_VALKEY_SERVER": ""}
    if server != "redis-7.0":
        sys.exit(f"SERVERS={server}: give {' or '.join(SERVERS)}")
    subprocess.run(["sh", str(HERE / "get_redis.sh")], check=False)
    path = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    if path is None:
        sys.exit("Redis 7.0 was not found: install redis-server, or set REDIS_SERVER=/path/to/redis-server")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    if not re.search(r"\bv=7\.0\.", version):
        sys.exit(f"{path} is not Redis 7.0: {version.strip()}; set REDIS_SERVER=/path/to/redis-server")
    return {"QBULL_VALKEY_SERVER": path}


def install(python: Interpreter) -> Path:
    """The Python of an environment with the locked versions and this checkout; it stays for the next run."""
    if python.version == "{}.{}".format(*sys.version_info):
        return Path(sys.executable)
    directory = ROOT / "build" / "matrix" / f"python-{python.version}"
    inside, stamp = directory / "bin" / "python", directory / ".installed"
    if stamp.exists() and stamp.stat().st_mtime > max(
        LOCK.stat().st_mtime, (ROOT / "pyproject.toml").stat().st_mtime
    ):
        return inside
    print(f"installing the locked versions into {directory.relative_to(ROOT)}", flush=True)
    subprocess.run([str(python.path), "-m", "venv", str(directory)], check=True)
    pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    stamp.touch()
    return inside


if __name__ == "__main__":
    main(sys.argv[1:])
