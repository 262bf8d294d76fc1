"""The templates: `qbull init` writes each of them complete, and its own tests pass there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml
from playing import EXAMPLES, to_its_end

from needed_tools import needs_tool
from qbull.cli.templates import TEMPLATES, template_texts

ROOT = EXAMPLES.parent


def write(template: str, where: Path) -> Path:
    """The template as a user writes it."""
    command = [sys.executable, "-m", "qbull.cli.main", "init", template, "--template", template]
    said = to_its_end(command, where, os.environ, 60)
    assert "python -m pytest" in said and f"cd {template}" in said
    return where / template


@pytest.mark.parametrize("template", TEMPLATES)
def test_its_own_tests_pass_where_it_is_written(template: str, database: str, tmp_path: Path) -> None:
    directory = write(template, tmp_path)
    to_its_end(["sh", "-c", "cp .env.example .env"], directory, os.environ, 60)
    environment = {**os.environ, "QBULL_DATABASE_URL": database}
    for name in ("QBULL_URL", "REDIS_URL"):
        environment.pop(name, None)

    said = to_its_end([sys.executable, "-m", "pytest", "-p", "no:cacheprovider"], directory, environment, 180)

    assert re.search(r"\d+ passed", said) and "skipped" not in said, said
    assert not (directory / ".qbull").exists(), "the tests leave a server behind"


@pytest.mark.parametrize("template", TEMPLATES)
def test_it_has_what_its_users_expect(template: str, tmp_path: Path) -> None:
    files = template_texts(template)
    settings = dict(re.findall(r"^#? ?([A-Z][A-Z0-9_]+)=(.*)$", files[".env.example"], re.MULTILINE))
    manager = "supervisord.conf" if "supervisord.conf" in files else "ecosystem.config.js"

    assert {"README.md", "Procfile", ".env.example", ".gitignore", "requirements.txt", manager} <= set(files)
    for heading in ("## The server", "## Run it", "## Test it", "## Deploy it"):
        assert heading in files["README.md"]
    assert "](../" not in files["README.md"], "a link that leads nowhere outside of the repository"
    used = re.findall(r"\$([A-Z][A-Z0-9_]+)", files["Procfile"])
    used += re.findall(r"(?:%\(ENV_|process\.env\.)([A-Z0-9_]+)", files[manager])
    assert set(used) <= set(settings), "a variable that .env.example lacks"
    assert ".env" in files[".gitignore"].splitlines()


def test_every_example_with_settings_is_a_template() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/.env.example")} == set(TEMPLATES)


def test_the_wheel_and_the_source_have_every_template() -> None:
    text = (ROOT / "pyproject.toml").read_text()

    for template in TEMPLATES:
        assert text.count(f'"examples/{template}"') == 1
        assert text.count(f'"/examples/{template}"') == 1


@pytest.mark.parametrize("template", ["orders", "chat", "agent"])
def test_supervisor_gives_workers_longer_than_their_grace(template: str) -> None:
    conf = RawConfigParser()
    conf.read_string(template_texts(template)["supervisord.conf"])
    workers = [name for name in conf.sections() if "qbull worker" in conf.get(name, "command", fallback="")]

    assert workers
    for name in workers:
        grace = re.search(r"--grace (\d+)", conf[name]["command"])
        assert int(conf[name]["stopwaitsecs"]) >= (int(grace[1]) if grace else 25) + 15


@needs_tool(shutil.which("node"), "there is no Node here")
@pytest.mark.parametrize("template", ["schedulers", "platform"])
def test_pm2_gives_workers_longer_than_their_grace(template: str) -> None:
    code = "process.stdout.write(JSON.stringify(require(process.argv[1]).apps))"
    path = EXAMPLES / template / "ecosystem.config.js"
    done = subprocess.run(["node", "-e", code, str(path)], capture_output=True, text=True, check=True)
    apps = json.loads(done.stdout)

    workers = [app for app in apps if "worker" in app["args"] or "server:web" in app["args"]]
    assert len(apps) == 3 and workers
    assert all(app["kill_timeout"] >= 40_000 for app in workers)
    assert {app["interpreter"] for app in apps} == {"none"}


def test_the_compose_file_keeps_what_was_acknowledged_and_waits_for_its_tables() -> None:
    services = yaml.safe_load(template_texts("orders")["compose.yaml"])["services"]

    assert services["api"]["ports"] == ["127.0.0.1:8000:8000"], "a port of all addresses"
    assert {"--appendonly", "--appendfsync", "noeviction"} <= set(services["valkey"]["command"])
    for name in ("api", "worker"):
        assert services[name]["depends_on"] == {"prepare": {"condition": "service_completed_successfully"}}
        assert services[name]["read_only"] is True
    assert services["worker"]["healthcheck"]["test"] == ["CMD", "qbull-alive"]
    assert services["worker"]["stop_grace_period"] == "40s"


def test_a_name_is_refused_beside_a_template(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qbull.cli.main", "init", "x", "--template", "chat", "--name", "y"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1 and "--name is for the small project" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_in_the_way_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "Procfile").write_text("mine")
    command = [sys.executable, "-m", "qbull.cli.main", "init", "chat", "--template", "chat"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 1 and "chat/Procfile exists already; nothing was written" in done.stderr
    assert [path.name for path in (tmp_path / "chat").iterdir()] == ["Procfile"]
