"""Render the chart: with `helm` if it is installed, else with render.go, which has the same template engine."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHART = ROOT / "deploy" / "helm" / "qbull"
SEPARATOR = "---\n"
PLAIN = {
    "settings.yaml": ("settings.yaml", "settings"),
    "serve.yaml": ("serve.yaml", "serve"),
    "auto.yaml": ("workers.yaml", "auto"),
    "leased.yaml": ("workers.yaml", "leased"),
    "static.yaml": ("workers.yaml", "static"),
    "keda.yaml": ("autoscaling.yaml", "auto"),
    "keda-prometheus.yaml": ("autoscaling.yaml", "auto"),
}
"""Each plain file: the template that it comes from, and the component whose objects it has."""


class CannotRender(Exception):
    """The chart refuses its values, or no renderer is installed."""


def can_render() -> bool:
    go_libraries = Path("/usr/share/gocode/src/github.com/Masterminds/sprig")
    return shutil.which("helm") is not None or (shutil.which("go") is not None and go_libraries.is_dir())


def render(values: Sequence[Path], release: str = "qbull", namespace: str = "default") -> dict[str, str]:
    """The text of each template, by its name."""
    if shutil.which("helm"):
        options = [option for path in values for option in ("--values", str(path))]
        command = ["helm", "template", release, str(CHART), "--namespace", namespace, *options]
    else:
        command = [str(_renderer()), str(CHART), release, namespace, *map(str, values)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRender(done.stderr.strip())
    found: dict[str, str] = {}
    name = ""
    for document in done.stdout.split(SEPARATOR):
        first, _, rest = document.partition("\n")
        if first.startswith("# Source: "):
            name = first.rpartition("/")[2].removeprefix("# Source: ")
            document = rest
        if document.strip():
            found[name] = found.get(name, "") + SEPARATOR + document.strip() + "\n"
    return found


def plain_files() -> dict[str, str]:
    """The text of each file in deploy/kubernetes."""
    folder = ROOT / "deploy" / "helm"
    by_api = render([folder / "shop.yaml"])
    by_prometheus = render([folder / "shop.yaml", folder / "prometheus.yaml"])
    return {
        file: _of_component(by_prometheus if "prometheus" in file else by_api, template, component)
        for file, (template, component) in PLAIN.items()
    }


def _of_component(rendered: dict[str, str], template: str, component: str) -> str:
    label = f"    app.kubernetes.io/component: {component}\n"
    documents = [part for part in rendered[template].split(SEPARATOR) if label in part]
    return SEPARATOR.join(documents).replace("managed-by: Helm", "managed-by: kubectl")


@functools.cache
def _renderer() -> Path:
    if not can_render():
        raise CannotRender(
            "install helm, or Debian's golang-go, golang-github-masterminds-sprig-dev and golang-gopkg-yaml.v3-dev"
        )
    folder = Path(tempfile.mkdtemp(prefix="qbull-render-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "render"
    environment = os.environ | {
        "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(folder / "cache"), "GOFLAGS": "",
    }  # fmt: skip
    command = ["go", "build", "-o", str(program), str(HERE / "render.go")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return program
