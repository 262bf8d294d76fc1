"""The production checklist: each command runs against a system that is set up as the page asks, and prints what the page shows."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner
from pages import DOCS, blocks_of
from test_tutorial import free_port
from tutorial import Reader, Step, steps_of

from qbull.cli.main import qbull as command_line
from relay import relaying, server_context
from topology import DURABLE, PASSWORD, Node, wait_for

PAGE = DOCS / "operate" / "checklist.md"
AREAS = {
    "Persistence", "Eviction and memory", "Durability", "TLS", "Users with the least rights", "Graceful shutdown", "Probes",
    "Alerts", "Metrics", "Retention", "Backups", "Sizing", "Upgrades",
}  # fmt: skip
SHOP = """
import qbull

app = qbull.App()
orders = app.queue("orders", order="key", alert=True)


@orders.task(key="{customer}")
async def charge(customer: str, cents: int) -> str:
    return "charged"


@orders.cron("0 3 * * *", name="nightly")
async def nightly() -> None: ...
"""
CLI = """#!{python}
# The server's own command line, as far as the page uses it: it prints the reply line by line.
import sys
import redis

words, login = sys.argv[1:], {{"username": "default", "password": "{password}"}}
if words[0] == "--user":
    _, login["username"], _, login["password"], *words = words
client = redis.Redis(port={port}, protocol=2, decode_responses=True, **login)
client.response_callbacks.clear()
try:
    reply = client.execute_command(*words)
except redis.AuthenticationError as error:
    reply = f"AUTH failed: WRONGPASS {{error}}"
print(*(reply if isinstance(reply, list) else [reply]), sep="\\n")
"""


class Receiver(BaseHTTPRequestHandler):
    """A person's mailbox for alerts."""

    got = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()
        self.got.set()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/alerts"
    server.shutdown()
    server.server_close()


@pytest.fixture
def node() -> Iterator[Node]:
    """A server as the page asks for it."""
    with tempfile.TemporaryDirectory(prefix="q") as directory:
        node = Node(Path(directory) / "server", DURABLE + "maxmemory 500mb\nmaxmemory-policy noeviction\n")
        node.start()
        try:
            wait_for(node.answers)
            yield node
        finally:
            node.kill()


@pytest.fixture
def operator(node: Node, receiver: str, database: str) -> Iterator[Reader]:
    """A person at a machine of the deployment: TLS, a user with the least rights, a place for alerts."""
    authority = trustme.CA()
    roles = ("worker", "producer", "relay", "admin", "api")
    rights = CliRunner().invoke(
        command_line, ["acl", *roles, "--user", "shop", "--durability", "durable", "--server-version", "7.2"]
    )
    node.tell(*rights.output.split("\n")[0].replace("PASSWORD", "word").split())
    with (
        tempfile.TemporaryDirectory(prefix="q") as directory,
        relaying(node.port, server_context(authority)) as relay,
    ):
        here = Path(directory)
        authority.cert_pem.write_to_path(here / "ca.pem")
        (here / "shop.py").write_text(SHOP)
        (here / "redis-cli").write_text(CLI.format(python=sys.executable, password=PASSWORD, port=node.port))
        (here / "redis-cli").chmod(0o755)
        reader = Reader(here, {"3050": free_port()})
        reader.environment |= {
            "PATH": f"{here}:{reader.environment['PATH']}",
            "QBULL_URL": f"rediss://shop:word@{relay.place}/0?ssl_ca_certs={here}/ca.pem",
            "QBULL_DATABASE_URL": database,
            "QBULL_ALERT_URLS": receiver,
            "QBULL_ALERT_ALLOW": "127.0.0.1",
        }
        yield reader
        reader.leaves()


@pytest.mark.timeout(600)
def test_every_command_prints_what_the_page_shows(operator: Reader, node: Node) -> None:
    operator.starts("qbull worker shop:app --processes 1", "press Ctrl-C to stop")
    operator.starts("QBULL_PASSWORD=a-long-password qbull serve shop:app --port 3050", "/ui")
    until = Step("before the page", "until it prints this", "sh", "qbull schedules -A shop:app")
    operator.types(until, "nightly")
    Receiver.got.clear()

    operator.does(list(runnable()))

    assert Receiver.got.wait(30), "the test message has arrived"
    denied = [entry[entry.index(b"object") + 1] for entry in node.tell("ACL", "LOG") if b"shop" in entry]
    assert denied == [], "the rights are enough for everything on the page"


def runnable() -> Iterator[Step]:
    """The commands in order. A block with a variable is one command, because each command has a shell of its own."""
    for step in steps_of(PAGE):
        if step.directive.startswith("not run: "):
            assert "kubectl" in step.text
        elif step.language == "sh" and "export " in step.text:
            yield Step(step.place, step.directive, "sh", ": ; " + step.text.strip().replace("\n", "; "))
        elif step.text != "45\n":
            yield step


def test_the_page_has_every_area_and_a_command_for_each_heading() -> None:
    text = PAGE.read_text()
    points = re.split(r"^### ", text, flags=re.MULTILINE)[1:]

    assert {point.partition("\n")[0] for point in points} >= AREAS
    # The line "transport" of the doctor, at the top of the page, checks TLS.
    assert [
        point.partition("\n")[0] for point in points if "```sh" not in point and not point.startswith("TLS\n")
    ] == []
    assert len([block for block in blocks_of(PAGE) if block.language == "sh"]) >= 20
