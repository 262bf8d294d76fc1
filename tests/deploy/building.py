"""The image of deploy/Dockerfile: Docker builds and runs it, or its steps are run in copies of this machine's files.

Without a builder, each stage gets an overlay of the root directory in a mount namespace of its own. What a step writes
stays there: COPY copies, RUN runs in it with chroot and an empty environment. The base image is replaced by a Python of
this machine, so `/opt/qbull`, `/app` and `/src` have only what the steps put there. This needs root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from clean_runs import without_node
from pythons import find_pythons
from reading import DEPLOY, ROOT
from test_image import Step, put, stages

BUILD_TIMEOUT_SECONDS = 600
COPY = """
mkdir -p "$2"
if test -d "$1"; then cp -a "$1/." "$2"; else cp -a "$1" "$2"; fi
"""
"""All files are copied into directories here."""
TOOLS = ("unshare", "nsenter", "mount", "chroot", "setpriv", "npm", "apt-get")


def has_docker() -> bool:
    """A daemon that can build."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False)
    return asked.returncode == 0


def has_overlays() -> bool:
    return os.geteuid() == 0 and sys.platform == "linux" and all(map(shutil.which, TOOLS))


class Image(Protocol):
    """A built image. It runs with a root that is read-only, a writable /tmp, and the network of this machine."""

    def command(self, variables: Mapping[str, str], *arguments: str) -> list[str]:
        """The command that runs the image with these arguments, or with its own."""

    def inside(self, *program: str) -> list[str]:
        """The command that runs a program beside the one that runs, as its user."""

    def remove(self) -> None: ...


class DockerImage:
    NAME = "qbull-tests"

    def __init__(self, more: Path) -> None:
        """Build the image and, from it, the one of an application. `more` has the application and its Dockerfile."""
        base = f"{self.NAME}-base"
        _run(["docker", "build", "--file", str(DEPLOY / "Dockerfile"), "--tag", base, str(ROOT)])
        file = more / "Dockerfile"
        file.write_text(file.read_text().replace("FROM qbull\n", f"FROM {base}\n"))
        _run(["docker", "build", "--tag", self.NAME, str(more)])

    def command(self, variables: Mapping[str, str], *arguments: str) -> list[str]:
        set_variables = [f"--env={name}={value}" for name, value in variables.items()]
        limits = ["--network=host", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL"]
        return ["docker", "run", "--rm", "--name", self.NAME, *limits, *set_variables, self.NAME, *arguments]

    def inside(self, *program: str) -> list[str]:
        return ["docker", "exec", self.NAME, *program]

    def remove(self) -> None:
        names = (self.NAME, f"{self.NAME}-base")
        subprocess.run(["docker", "rmi", "--force", *names], capture_output=True, check=False)


class OverlayImage:
    def __init__(self, more: Path, directory: Path) -> None:
        """Run all steps of the Dockerfile in `directory`, then those of the Dockerfile in `more`."""
        assert not Path("/opt/qbull").exists(), "this machine has a /opt/qbull of its own"
        self._directory = directory
        self._keeper = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=755 tmpfs "$0" && echo ready && exec cat', directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._keeper.stdout is not None and self._keeper.stdout.readline() == b"ready\n"
        try:
            self._build(more)
        except BaseException:
            self.remove()
            raise

    def _build(self, more: Path) -> None:
        self._stages: dict[str, Path] = {}
        self.user, self.entry, self.arguments = "0:0", [""], [""]
        context = self._directory.with_name("context")
        copy_context(context)
        for number, steps in enumerate(stages()):
            named = re.search(r" AS (\w+)$", steps[0].rest)
            self._run_stage(named[1] if named else str(number), steps, context)
        self._run_more(more)
        self._in_namespace("mount", "-o", "remount,ro", str(self._root))
        self._in_namespace("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{self._root}/tmp")

    def command(self, variables: Mapping[str, str], *arguments: str) -> list[str]:
        program = [*self.entry, *(arguments or self.arguments)]
        return self._as_user(self.variables | variables, program)

    def inside(self, *program: str) -> list[str]:
        return self._as_user(self.variables, program)

    def remove(self) -> None:
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        self._keeper.wait(30)

    def _run_stage(self, name: str, steps: Sequence[Step], context: Path) -> None:
        self._root = self._stages[name] = self._new_root(name)
        self.variables, self._workdir = (
            {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"},
            "/",
        )
        for step in steps[1:]:
            self._run_step(step, context)

    def _run_more(self, more: Path) -> None:
        """An image FROM this one: the same root, and one more context."""
        lines = (more / "Dockerfile").read_text().splitlines()
        assert lines[0] == "FROM qbull"
        for word, _, rest in (line.partition(" ") for line in lines[1:]):
            self._run_step(Step(word, rest), more)

    def _new_root(self, name: str) -> Path:
        """An overlay of all files of this machine but those of the repository, with a Python under /usr/local/bin."""
        here = self._directory / name
        python = find_pythons()[-1].path.resolve()
        script = f"""
            mkdir -p {here}/written {here}/work {here}/root
            mount -t overlay overlay -o lowerdir=/,upperdir={here}/written,workdir={here}/work {here}/root
            mount --rbind /dev {here}/root/dev
            mount -t proc proc {here}/root/proc
            mount -t tmpfs -o mode=1777 tmpfs {here}/root/tmp
            mkdir -p {here}/root{ROOT}
            mount -t tmpfs tmpfs {here}/root{ROOT}
            chmod o+rx {" ".join(f"{here}/root{parent}" for parent in python.parents)}
            cd {here}/root/usr/local/bin
            rm -f python pip
            printf '#!/bin/sh\\nexec {python} "$@"\\n' > python
            printf '#!/bin/sh\\nexec {python} -m pip "$@"\\n' > pip
            chmod +x python pip
        """
        self._in_namespace("sh", "-ec", script)
        return here / "root"

    def _run_step(self, step: Step, context: Path) -> None:
        match step.word:
            case "RUN":
                self._in_namespace(*self._chroot(without_private(self.variables), ["sh", "-ec", step.rest]))
            case "COPY":
                self._copy(shlex.split(step.rest), context)
            case "ENV":
                words = dict(word.split("=", 1) for word in shlex.split(step.rest))
                self.variables |= {name: value.replace("$PATH", self.variables["PATH"]) for name, value in words.items()}  # fmt: skip
            case "WORKDIR":
                self._workdir = step.rest
                self._in_namespace("mkdir", "-p", f"{self._root}{step.rest}")
            case "USER":
                self.user = step.rest
            case "ENTRYPOINT":
                self.entry = step.listed
            case "CMD":
                self.arguments = step.listed
            case "STOPSIGNAL" | "HEALTHCHECK":
                pass  # test_image.py reads them
            case _:
                raise AssertionError(f"a step that is not run: {step}")

    def _copy(self, words: list[str], context: Path) -> None:
        options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        *sources, target = [word for word in words if not word.startswith("--")]
        into = Path(self._workdir) / target
        given = self._stages[options["from"]] if "from" in options else context
        for source in sources:
            found = f"{given}/{source}"
            self._in_namespace("sh", "-ec", COPY, "copy", found, f"{self._root}{into}")
        if owner := options.get("chown"):
            self._in_namespace(*self._chroot({}, ["chown", "-R", f"{owner}:", str(into)]))

    def _chroot(self, variables: Mapping[str, str], program: Sequence[str], *options: str) -> list[str]:
        path = {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin"} | dict(variables)
        settings = [f"{name}={value}" for name, value in path.items()]
        go = 'cd "$0" && exec "$@"'
        return ["chroot", str(self._root), "env", "-i", *settings, *options, "sh", "-c", go, self._workdir, *program]  # fmt: skip

    def _as_user(self, variables: Mapping[str, str], program: Sequence[str]) -> list[str]:
        user, group = self.user.split(":")
        drop = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]  # fmt: skip
        return [*self._namespace(), *self._chroot(variables, program, *drop)]

    def _namespace(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._keeper.pid}/ns/mnt"]

    def _in_namespace(self, *command: str) -> None:
        _run([*self._namespace(), *command])


def copy_context(directory: Path) -> None:
    """What the Dockerfile copies, without what its ignore file leaves out."""
    copied = [shlex.split(step.rest) for stage in stages() for step in stage if step.word == "COPY"]
    for source in {source for words in copied if "--from=" not in words[0] for source in words[:-1]}:
        put(ROOT / source, directory / source)


def without_private(variables: Mapping[str, str]) -> dict[str, str]:
    """What a step gets beside the variables of the image: the way to the packages, as a builder passes it on."""
    kept = without_node()
    return {name: value for name, value in kept.items() if name not in ("PATH", "HOME", "TMPDIR")} | {
        "HOME": "/root",
        **variables,
    }


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, f"{shlex.join(command)[-400:]}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
