"""The recipes of the templates' pages: the process managers that they name start every process, and stop it in peace."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from playing import Example, answers, ask
from supervising import Supervisord, supervised

from conftest import eventually
from needed_tools import needs_tool
from qbull.store.store import Store
from topology import free_port

NODE = Path(__file__).parents[1] / "node"
PM2 = NODE / "node_modules" / ".bin" / "pm2"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
NEEDS_PM2 = needs_tool(PM2.exists(), "`make test` has not installed tests/node")
SUPERVISORD = "supervisord -c supervisord.conf"
HOST = "ceres.example.org"

pytestmark = pytest.mark.timeout(240)


def prepared(name: str, where: Path, url: str, **settings: object) -> Example:
    """The example with the variables of its .env.example in the environment, as a process manager has them."""
    example = Example(name, where, url)
    example.configure(**settings)
    pairs = re.findall(
        r"^([A-Z][A-Z0-9_]*)='?(.*?)'?$", (example.directory / ".env").read_text(), re.MULTILINE
    )
    example.environment = {**os.environ, **dict(pairs), "PATH": example.environment["PATH"]}
    return example


@contextmanager
def run_by_supervisord(example: Example, wanted: int) -> Iterator[Supervisord]:
    assert f"`{SUPERVISORD}`" in example.page
    try:
        with supervised(example.directory / "supervisord.conf", example.environment, wanted) as supervisord:
            yield supervisord
    finally:
        example.close()


def ended_in_peace(supervisord: Supervisord, *names: str) -> None:
    for name in names:
        assert re.search(rf"stopped: {name} \(exit status 0\)", supervisord.said), supervisord.said
    assert "killing" not in supervisord.said and "exited" not in supervisord.said, supervisord.said


async def test_supervisord_runs_the_orders(
    store: Store, server_url: str, database: str, tmp_path: Path
) -> None:
    port = free_port()
    example = prepared(
        "orders", tmp_path, server_url,
        QBULL_URL=server_url, QBULL_PREFIX="test", QBULL_DATABASE_URL=database, PORT=port, WORKERS=1, ORDERS_SECONDS=0.1,
    )  # fmt: skip
    orders = f"http://127.0.0.1:{port}/orders"
    example.run("python prepare.py")

    with run_by_supervisord(example, wanted=2) as supervisord:
        await eventually(lambda: answers(orders + "/0"), within=60)
        status, order = ask(orders, "POST", {"product": "Laptop", "quantity": 1, "price": 1200})

        async def is_completed() -> bool:
            return bool(ask(f"{orders}/{order['orderId']}")[1]["status"] == "completed")

        await eventually(is_completed, within=60)

    assert status == 202
    ended_in_peace(supervisord, "worker")


async def test_supervisord_runs_two_static_pods(store: Store, server_url: str, tmp_path: Path) -> None:
    example = prepared(
        "chat", tmp_path, server_url, QBULL_URL=server_url, QBULL_PREFIX="test", UI_PORT=free_port()
    )

    with run_by_supervisord(example, wanted=3) as supervisord:
        said = example.run(
            """qbull enqueue WHATSAPP send '{"phone": "+5493515550100", "text": "hola"}' -A whatsapp:app --wait 60"""
        )
        readers = example.run("qbull partitions WHATSAPP")

    assert (example.directory / "chats" / "+5493515550100.txt").read_text() == "hola\n", said
    assert len(re.findall(r"^\s*(?:\d|1[0-5]) ", readers, re.MULTILINE)) == 16
    ended_in_peace(supervisord, "pod-0", "pod-1")


async def test_supervisord_runs_the_agent(store: Store, server_url: str, tmp_path: Path) -> None:
    port = free_port()
    example = prepared(
        "agent", tmp_path, server_url,
        QBULL_URL=server_url, QBULL_PREFIX="test", DASHBOARD_PORT=port, SECONDS_PER_TOKEN=0,
    )  # fmt: skip

    with run_by_supervisord(example, wanted=2) as supervisord:
        await eventually(lambda: answers(f"http://127.0.0.1:{port}/healthz"), within=60)
        shown = example.run('honcho run python ask.py "Where is order 7?"')

    assert "Order 7 is a teapot" in shown
    ended_in_peace(supervisord, "worker")


@contextmanager
def run_by_pm2(example: Example, home: Path) -> Iterator[Any]:
    """A PM2 of its own, which has started the file as the page says. Gives what lists its processes."""
    example.environment |= {
        "PM2_HOME": str(home),
        "PM2_DISABLE_VERSION_CHECK": "true",
        "PATH": f"{PM2.parent}:{example.environment['PATH']}",
    }

    def pm2(*arguments: str) -> str:
        done = subprocess.run(
            ["pm2", *arguments], cwd=example.directory, env=example.environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def processes() -> dict[str, tuple[str, int]]:
        """The state and the number of restarts of each."""
        listed = json.loads(pm2("jlist").splitlines()[-1])
        return {one["name"]: (one["pm2_env"]["status"], one["pm2_env"]["restart_time"]) for one in listed}

    try:
        example.run("pm2 start ecosystem.config.js")
        yield processes
        pm2("stop", "all")
        log = (home / "pm2.log").read_text()
        assert "SIGKILL" not in log, log
    finally:
        pm2("kill")
        example.close()


@NEEDS_PM2
async def test_pm2_runs_three_servers(store: Store, server_url: str, tmp_path: Path) -> None:
    ports = {f"SERVER_{number}_PORT": free_port() for number in (1, 2, 3)}
    example = prepared("schedulers", tmp_path, server_url, QBULL_URL=server_url, QBULL_PREFIX="test", **ports)
    token = example.environment["QBULL_ADMIN_TOKEN"]

    with run_by_pm2(example, tmp_path / "pm2") as processes:
        for port in ports.values():
            await eventually(lambda port=port: answers(f"http://127.0.0.1:{port}/healthz"), within=60)
        any_server = f"http://127.0.0.1:{ports['SERVER_2_PORT']}"
        await eventually(lambda: has_run(any_server, "log-cleaning", "maintenance", token), within=60)
        started = processes()

    assert started == {f"schedulers-{number}": ("online", 0) for number in (1, 2, 3)}


@NEEDS_PM2
async def test_pm2_runs_the_platform(store: Store, server_url: str, tmp_path: Path) -> None:
    example, ports = platform(tmp_path, server_url)

    with run_by_pm2(example, tmp_path / "pm2") as processes:
        ui = f"http://127.0.0.1:{ports['UI_PORT']}"
        for url in (f"{ui}/healthz", f"http://127.0.0.1:{ports['APP_PORT']}/users/nobody"):
            await eventually(lambda url=url: answers(url), within=60)
        token = example.environment["QBULL_ADMIN_TOKEN"]
        await eventually(lambda: has_run(ui, "clean-verification-tokens", "maintenance", token), within=60)
        started = processes()

    assert started == dict.fromkeys(("ceres-app", "ceres-worker", "ceres-queues-ui"), ("online", 0))


async def has_run(url: str, schedule: str, queue: str, token: str) -> bool:
    """Run the schedule unless it was run, and say whether its job is completed."""
    status, counts = ask(f"{url}/api/queues/{queue}/stats", token=token)
    if status != 200 or not counts["total"]:
        ask(f"{url}/api/queues/{schedule}/run", "POST", token=token)
    return bool(status == 200 and counts["completed"])


def platform(where: Path, url: str) -> tuple[Example, dict[str, int]]:
    ports = {name: free_port() for name in ("APP_PORT", "UI_PORT")}
    example = prepared("platform", where, url, **ports, REDIS_URL=url, REDIS_PREFIX="test:")
    return example, ports


@needs_tool(NGINX, "nginx is not installed")
@pytest.mark.parametrize("office", ["127.0.0.0/8", "203.0.113.0/24"])
async def test_nginx_shows_the_dashboard_to_the_office_alone(
    store: Store, server_url: str, tmp_path: Path, office: str
) -> None:
    example, ports = platform(tmp_path, server_url)
    port = free_port()
    example.environment |= {"QBULL_PUBLIC_URL": f"https://{HOST}/queues"}
    example.start(
        "qbull serve ceres:app --proxies 127.0.0.1 --allow-host ceres.example.org",
        f"--port {ports['UI_PORT']}",
    )
    app = ["uvicorn", "web:web", "--log-level", "warning", "--port", str(ports["APP_PORT"])]
    example.started.append(
        subprocess.Popen(app, cwd=example.directory, env=example.environment, start_new_session=True)
    )
    nginx = subprocess.Popen(configured_nginx(example, tmp_path, port, ports, office))
    try:
        for url in (
            f"http://127.0.0.1:{ports['UI_PORT']}/healthz",
            f"http://127.0.0.1:{ports['APP_PORT']}/users/x",
        ):
            await eventually(lambda url=url: answers(url), within=60)
        await eventually(lambda: is_up(port), within=20)
        page, application = fetch(port, "/queues/ui/"), fetch(port, "/users/nobody")
    finally:
        nginx.terminate()
        nginx.wait(20)
        example.close()

    assert application == (404, '{"error":"no such user"}')
    assert page[0] == (200 if office.startswith("127.") else 403)
    if page[0] == 200:
        assert "<title>" in page[1] and "/queues/" in page[1], "the page knows below which path it is"


def configured_nginx(
    example: Example, where: Path, port: int, ports: Mapping[str, int], office: str
) -> list[str]:
    """The command of an nginx that includes the file of the template, with this machine's ports and certificate."""
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    certificate.private_key_pem.write_to_path(where / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(where / "chain.pem")
    text = (example.directory / "nginx.conf").read_text()
    for named, here in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        f"/etc/letsencrypt/live/{HOST}/fullchain.pem": str(where / "chain.pem"),
        f"/etc/letsencrypt/live/{HOST}/privkey.pem": str(where / "key.pem"),
        "http://127.0.0.1:3000;": f"http://127.0.0.1:{ports['APP_PORT']};",
        "http://127.0.0.1:3050/;": f"http://127.0.0.1:{ports['UI_PORT']}/;",
        "allow 203.0.113.0/24": f"allow {office}",
    }.items():
        assert named in text
        text = text.replace(named, here)
    (where / "ceres.conf").write_text(text)
    folders = "".join(
        f"{kind}_temp_path {where}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (where / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {where}/nginx.pid; error_log {where}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {folders}include {where}/ceres.conf; }}\n"
    )
    return [str(NGINX), "-p", str(where), "-e", f"{where}/error.log", "-c", str(where / "nginx.conf")]


def fetch(port: int, path: str) -> tuple[int, str]:
    """Through nginx, under the name of the host."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers={"Host": HOST})
    try:
        with urllib.request.urlopen(request, timeout=20, context=unchecked) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def is_up(port: int) -> bool:
    try:
        return fetch(port, "/users/nobody")[0] < 500
    except OSError:
        return False
