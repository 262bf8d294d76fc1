"""A real nginx with TLS and a path of its own before `qbull serve`, configured as the guide says."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trustme
from dashboard_server import ADMIN, PASSWORD, DashboardServer, address, person, running
from playwright.async_api import Browser, expect

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built
from topology import free_port, wait_for

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
DOCS = Path(__file__).parents[2] / "docs"
GUIDE, RECIPE = DOCS / "guides" / "rest_api.md", DOCS / "howto" / "nginx.md"

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(NGINX, "nginx is not installed"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]


PASSES_ON = "proxy_pass UPSTREAM;"
WAYS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "the path is passed on": (("--root-path", "/queues"), {}),
    "the path is removed": (("--root-path", "/queues/"), {PASSES_ON: "proxy_pass UPSTREAM/;"}),
    "the proxy names the path": (
        (),
        {PASSES_ON: "proxy_pass UPSTREAM/; proxy_set_header X-Forwarded-Prefix /queues;"},
    ),
}
"""By name: the options of `qbull serve`, and changes in the configuration of the guide."""


def configuration(folder: Path, port: int, upstream: str, changes: dict[str, str], page: Path) -> str:
    """The nginx configuration of a page, with this machine's ports and files."""
    found = re.search(r"```nginx\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    server = found.group(1)
    own = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/tools.pem": f"{folder}/tools.pem",
        "/etc/ssl/tools.key": f"{folder}/tools.key",
        "http://127.0.0.1:3050": upstream,
    }
    for old, new in [*own.items(), *changes.items()]:
        old, new = old.replace("UPSTREAM", upstream), new.replace("UPSTREAM", upstream)
        assert old in server, old
        server = server.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    return (
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{server}\n}}\n"
    )


@contextmanager
def proxied(
    dashboard: DashboardServer,
    folder: Path,
    options: tuple[str, ...],
    changes: dict[str, str],
    page: Path = GUIDE,
) -> Iterator[DashboardServer]:
    """`qbull serve` with these options behind nginx, as people see it."""
    ca, port = trustme.CA(), free_port()
    certificate = ca.issue_cert("tools.example.org", "localhost")
    certificate.private_key_pem.write_to_path(folder / "tools.key")
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(folder / "tools.pem", append=number > 0)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    serve = ("serve", "dashboard_app:app", "--port", "0", "--proxies", "127.0.0.1", *options)
    with running({**dashboard.environment, "QBULL_LOG_LEVEL": "WARNING"}, *serve) as serving:
        upstream = address(serving)
        (folder / "nginx.conf").write_text(configuration(folder, port, upstream, changes, page))
        assert NGINX is not None
        command = [NGINX, "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(folder / "nginx.conf")]
        seen = DashboardServer(dashboard.environment, f"https://localhost:{port}/queues")
        seen.api.close()
        seen.api = httpx.Client(
            base_url=f"{seen.url}/api/",
            headers={"authorization": f"Bearer {ADMIN}"},
            verify=ssl.create_default_context(cafile=folder / "ca.pem"),
            timeout=30,
            trust_env=False,
        )
        nginx = subprocess.Popen(command)
        try:
            wait_for(lambda: answers(seen, nginx))
            yield seen
        finally:
            seen.api.close()
            nginx.terminate()
            nginx.wait(15)


def answers(seen: DashboardServer, nginx: subprocess.Popen[bytes]) -> bool:
    assert nginx.poll() is None, "nginx has ended"
    try:
        return seen.api.get("workers").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("way", WAYS)
async def test_the_dashboard_works_below_a_path_of_another_host(
    way: str, dashboard: DashboardServer, browser: Browser, tmp_path: Path
) -> None:
    with proxied(dashboard, tmp_path, *WAYS[way]) as seen:
        somebody = await person(seen, browser, None, ignore_https_errors=True)
        page = somebody.page

        await page.goto(f"{seen.url}/")
        await page.get_by_label("Password", exact=True).last.fill(PASSWORD)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.locator(".side .live")).to_have_text("Live")
        id = seen.enqueue("email", "welcome", {"user_id": "u1", "address": "nginx@example.com"})
        seen.until("email", id, "completed")
        done = seen.ask("GET", "queues/email/stats")["completed"]
        await expect(page.get_by_role("link", name=f"email: {done} completed")).to_be_visible()
        await page.goto(f"{seen.url}/ui/job?queue=email&id={id}")
        await expect(page.get_by_role("heading", name="welcome")).to_be_visible()
        [cookie] = await somebody.context.cookies()

        assert page.url.startswith(f"{seen.url}/ui/")
        assert (cookie.get("path"), cookie.get("secure"), cookie.get("httpOnly")) == ("/queues/", True, True)
        assert somebody.wrong == []
        await somebody.context.close()


async def test_the_recipe_works(dashboard: DashboardServer, tmp_path: Path) -> None:
    with proxied(dashboard, tmp_path, (), {}, RECIPE) as seen:
        made = seen.api.post(
            "queues/email/jobs",
            json={"task": "welcome", "payload": {"user_id": "u1", "address": "recipe@example.com"}},
        )
        shown = seen.api.get(f"{seen.url}/ui/")

    assert made.status_code == 202, made.text
    assert made.headers["location"].startswith("/queues/api/queues/email/jobs/")
    assert shown.status_code == 200 and "/queues/" in shown.text


async def test_the_api_answers_below_the_path(dashboard: DashboardServer, tmp_path: Path) -> None:
    with proxied(dashboard, tmp_path, *WAYS["the path is passed on"]) as seen:
        made = seen.api.post(
            "queues/email/jobs", json={"task": "welcome", "payload": {"user_id": "u", "address": "a"}}
        )
        with seen.api.stream("GET", "events") as events:
            first = next(events.iter_lines())

        assert made.status_code == 202
        assert made.headers["location"].startswith("/queues/api/queues/email/jobs/")
        assert events.headers["content-type"].startswith("text/event-stream")
        assert first
