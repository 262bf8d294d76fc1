"""serve and token: the REST API from a shell."""

from __future__ import annotations

import base64
import re
import signal
import time
from pathlib import Path

import httpx
import pytest
from later import AWAY, BACK, claim_a_place  # noqa: F401 - a fixture
from later import url_of as later_url
from sample_app import SampleApp
from shell import Shell, make_sample, open_shell, seen  # noqa: F401 - two are fixtures

import qbull
from topology import Node

TOKEN = "a-token-that-only-the-tests-know"


def url_of(shell: Shell) -> str:
    """Where it serves, once it says so."""
    said = seen(lambda: re.search(r"http://127\.0\.0\.1:\d+", shell.err))
    assert said is not None
    return said.group()


def test_without_a_password_one_is_made_and_said(shell: Shell, app: qbull.App) -> None:
    shell.start("serve", "sample_app:app", "--port", "0")
    url = url_of(shell)
    password = seen(lambda: re.search(r"user admin, password (\S+)", shell.err))
    assert password is not None

    right = httpx.get(f"{url}/api/me", auth=("admin", password.group(1)), trust_env=False)
    wrong = httpx.get(f"{url}/api/me", auth=("admin", "admin"), trust_env=False)

    assert (right.status_code, wrong.status_code) == (200, 401)
    assert len(password.group(1)) >= 16


def test_a_password_that_is_set_is_not_said(shell: Shell, app: qbull.App) -> None:
    shell.start("serve", "sample_app:app", "--port", "0", QUEUES_UI_PASS="a-long-secret")
    url = url_of(shell)

    assert httpx.get(f"{url}/api/me", auth=("admin", "a-long-secret"), trust_env=False).status_code == 200
    assert "password" not in shell.err


def test_a_server_that_is_started_later_is_waited_for(shell: Shell, later: Node) -> None:
    serving = shell.start(
        "serve", "sample_app:app", "--port", "0", QBULL_URL=later_url(later), QUEUES_UI_PASS=TOKEN
    )
    seen(lambda: AWAY in shell.err)

    later.start()

    assert httpx.get(f"{url_of(shell)}/api/me", auth=("admin", TOKEN), trust_env=False).status_code == 200
    serving.terminate()
    assert serving.wait(20) == 0
    assert (shell.err.count(AWAY), shell.err.count(BACK)) == (1, 1)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_who_waits_for_a_server_ends_when_told_to(shell: Shell, later: Node, name: signal.Signals) -> None:
    serving = shell.start("serve", "sample_app:app", "--port", "0", QBULL_URL=later_url(later))
    seen(lambda: AWAY in shell.err)

    serving.send_signal(name)

    assert serving.wait(10) == 0
    assert "Traceback" not in shell.err


@pytest.mark.parametrize(
    ("options", "is_said"),
    [
        (["--host", "0.0.0.0"], True),
        (["--root-path", "/queues"], True),
        (["--allow-host", "tools.example.org"], True),
        (["--host", "0.0.0.0", "--proxies", "10.0.0.7"], False),
        (["--root-path", "/queues", "--proxies", "127.0.0.1"], False),
        (["--host", "localhost"], False),
        ([], False),
    ],
    ids=str,
)
def test_the_start_tells_if_no_proxy_is_declared(
    shell: Shell, app: qbull.App, options: list[str], is_said: bool
) -> None:
    process = shell.start("serve", "sample_app:app", "--port", "0", *options, QBULL_VIEWER_TOKEN=TOKEN)
    # The password is printed last.
    seen(lambda: "user admin, password" in shell.err, within=60)

    process.terminate()

    assert process.wait(20) == 0
    lines = [line for line in shell.err.splitlines() if "no proxy is declared" in line]
    assert len(lines) == is_said, shell.err
    assert all("--proxies" in line for line in lines)


def test_the_start_warns_of_proxies_that_anybody_can_be(shell: Shell, app: qbull.App) -> None:
    process = shell.start("serve", "sample_app:app", "--port", "0", "--proxies", "*", QUEUES_UI_PASS=TOKEN)

    seen(lambda: "wrong passwords are not limited" in shell.err, within=60)

    process.terminate()
    assert process.wait(20) == 0


@pytest.mark.parametrize("proxies", ["proxy.internal", "10.0.0.7,*", "10.0.0.0/33", "10.0.0.7;10.0.0.8"])
def test_proxies_that_would_never_match_are_refused(shell: Shell, app: qbull.App, proxies: str) -> None:
    said = shell.refused("serve", "sample_app:app", "--port", "0", "--proxies", proxies, code=2)

    assert "give IP addresses or networks, such as 10.0.0.7 or 10.0.0.0/8" in said


async def test_a_network_of_proxies_is_trusted_and_a_client_claims_no_other_address(
    shell: Shell, app: qbull.App
) -> None:
    proxies = ("--proxies", "10.9.0.1/24, 127.0.0.1/8")
    shell.start("serve", "sample_app:app", "--port", "0", *proxies, QUEUES_UI_PASS=TOKEN)
    url = url_of(shell)
    # A client behind two proxies writes an address of its own before those that the proxies add.
    forwarded = {"x-forwarded-for": "203.0.113.9, 198.51.100.4, 10.9.0.77"}
    wrong = {"password": "a wrong password"}
    tried = httpx.post(f"{url}/api/login", json=wrong, headers=forwarded, trust_env=False)

    headers = {"authorization": f"Basic {base64.b64encode(f'admin:{TOKEN}'.encode()).decode()}"}
    [entry] = httpx.get(f"{url}/api/audit", headers=headers, trust_env=False).json()["entries"]

    assert tried.status_code == 401
    assert entry["address"] == "198.51.100.4"


async def test_tokens_are_made_listed_and_revoked(shell: Shell, app: qbull.App) -> None:
    made = shell.ok("token", "create", "--role", "viewer", "--name", "grafana", "--expires", "90d").strip()
    [listed] = shell.json("token", "list")
    assert (listed["name"], listed["role"], listed["lastUsedAt"]) == ("grafana", "viewer", None)
    assert made not in shell.ok("token", "list") and "grafana" in shell.ok("token", "list")

    shell.start("serve", "--port", "0")
    url = url_of(shell)
    headers = {"authorization": f"Bearer {made}"}
    assert httpx.get(f"{url}/api/queues/stats", headers=headers, trust_env=False).status_code == 200
    assert shell.json("token", "list")[0]["lastUsedAt"] is not None
    shell.ok("token", "revoke", listed["id"])

    assert seen(
        lambda: httpx.get(f"{url}/api/queues/stats", headers=headers, trust_env=False).status_code == 401
    )
    assert "no token" in shell.refused("token", "revoke", listed["id"])


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["sample_app:app", "--host", "300.1.2.3"], {}, "cannot listen on 300.1.2.3"),
        (["sample_app:app", "--url", "redis://localhost"], {}, "omit --url and --prefix"),
        (["sample_app:app"], {"QBULL_ALLOWED_HOSTS": "http://x"}, "host 'http://x'"),
        (["sample_app:app"], {"QBULL_ADMIN_TOKEN": "same", "QBULL_VIEWER_TOKEN": "same"}, "are the same"),
        (["sample_app:app"], {"QUEUES_UI_PASS": "short"}, "QUEUES_UI_PASS (password) has 5 characters"),
        (
            ["sample_app:app"],
            {"QBULL_OPERATOR_TOKEN": "fifteen-letters"},
            "has 15 characters and can be guessed",
        ),
        (["sample_app:app"], {"QBULL_HIDE_PAYLOADS": "perhaps"}, "QBULL_HIDE_PAYLOADS"),
        (["nothing:app"], {}, 'no module "nothing"'),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_in_one_line(
    shell: Shell, app: qbull.App, arguments: list[str], environment: dict[str, str], said: str
) -> None:
    ended = shell.run("serve", "--port", "0", *arguments, **environment)

    assert ended.code != 0 and said in ended.err and "Traceback" not in ended.err


def test_a_port_that_is_taken_is_said(shell: Shell, app: qbull.App) -> None:
    shell.start("serve", "sample_app:app", "--port", "0")
    port = url_of(shell).rpartition(":")[2]

    assert "Address already in use" in shell.refused("serve", "sample_app:app", "--port", port)


@pytest.mark.parametrize("expires", ["x", "0d", "5", "-1d", "10000000d"])
def test_how_long_a_token_lasts_must_make_sense(shell: Shell, app: qbull.App, expires: str) -> None:
    shell.refused("token", "create", "--role", "viewer", "--name", "x", "--expires", expires, code=2)


async def test_sigterm_ends_it_soon_although_streams_are_open(shell: Shell, sample: SampleApp) -> None:
    process = shell.start("serve", "sample_app:app", "--port", "0", QBULL_VIEWER_TOKEN=TOKEN)
    url = url_of(shell)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=20) as client:
        streams = [client.stream("GET", "/api/events") for _ in range(5)]
        answers = [await stream.__aenter__() for stream in streams]
        lines = [answer.aiter_lines() for answer in answers]
        for heard in lines:
            while "snapshot" not in await anext(heard):
                pass

        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        for heard in lines:
            assert any("the server ends" in line for line in [line async for line in heard])
        code = seen(lambda: process.poll() is not None and [process.returncode])
        took = time.monotonic() - began
        for stream in streams:
            await stream.__aexit__(None, None, None)

    assert code == [0]
    assert took < 10, (
        took
    )  # a quarter of a second on a quiet machine; a stream alone would stay open for ever


def test_an_installation_without_the_extra_says_what_to_install(
    shell: Shell, tmp_path: Path, app: qbull.App
) -> None:
    (tmp_path / "starlette.py").write_text(
        "raise ModuleNotFoundError('No module named starlette', name='starlette')"
    )

    ended = shell.run("serve", "sample_app:app", PYTHONPATH=f"{tmp_path}:{shell.environment['PYTHONPATH']}")

    assert ended.code == 1 and 'pip install "qbull[api]"' in ended.err


def test_a_password_of_another_program_is_reported_at_the_start(shell: Shell) -> None:
    shell.start("serve", "sample_app:app", "--port", "0", ADMIN_PASSWORD="a-long-password")
    assert seen(lambda: "the password of the dashboard is that of ADMIN_PASSWORD" in shell.err, within=60)


def test_a_webhook_of_another_program_is_reported_at_the_start(shell: Shell) -> None:
    foreign = {"SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/x"}
    shell.start("worker", "sample_app:app", **foreign, DATABASE_URL="postgresql://127.0.0.1:1/another")
    assert seen(lambda: "qbull worker: alerts go to SLACK_WEBHOOK_URL" in shell.err, within=60)
    assert seen(lambda: "the outbox is read from DATABASE_URL" in shell.err, within=60)


def test_a_dashboard_reports_a_webhook_of_another_program_too(shell: Shell) -> None:
    foreign = {"SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/x"}
    shell.start("serve", "sample_app:app", "--port", "0", **foreign)
    assert seen(lambda: "qbull serve: alerts go to SLACK_WEBHOOK_URL" in shell.err, within=60)


def test_own_names_need_no_report(shell: Shell) -> None:
    shell.start(
        "serve",
        "sample_app:app",
        "--port",
        "0",
        ADMIN_PASSWORD="another-password",
        QBULL_PASSWORD="a-long-password",
    )
    assert seen(lambda: "/ui; press Ctrl-C to stop" in shell.err, within=60)
    assert "ADMIN_PASSWORD" not in shell.err
    assert "password " not in shell.err
