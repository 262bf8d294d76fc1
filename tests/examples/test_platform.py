"""examples/platform: application, worker and dashboard as three processes, with a real mail server; driven over HTTP alone."""

from __future__ import annotations

import io
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playing import EXAMPLES, Example, answers, ask

from conftest import eventually, every_fault
from needed_tools import needs_tool
from qbull.store.store import Store
from topology import free_port

TOKEN = "local-admin-token"
START = "honcho -f Procfile.dev start"

pytestmark = pytest.mark.timeout(240)


class Platform(Example):
    def __init__(self, where: Path, url: str) -> None:
        super().__init__("platform", where, url)
        del self.environment["QBULL_URL"], self.environment["QBULL_PREFIX"]
        names = ("APP_PORT", "UI_PORT", "SMTP_PORT", "OUTSIDE_PORT")
        self.ports = {name: free_port() for name in names}
        self.configure(**self.ports, REDIS_URL=url, SLACK_WEBHOOK_URL=self.outside("/slack"))

    async def start_all(self) -> None:
        self.start(START)
        for url in (self.outside("/mails"), self.app("/users/nobody"), self.ui("/healthz")):
            await eventually(lambda url=url: answers(url), within=60)

    def app(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports['APP_PORT']}{path}"

    def ui(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports['UI_PORT']}{path}"

    def outside(self, path: str) -> str:
        return f"http://127.0.0.1:{self.ports['OUTSIDE_PORT']}{path}"

    def act(self, path: str, method: str = "POST", body: Any = None) -> Any:
        status, answer = ask(self.ui(path), method, body, TOKEN)
        assert status in (200, 202), answer
        return answer

    def register(self, email: str) -> str:
        status, answer = ask(self.app("/ceres/users"), "POST", {"email": email, "first_name": "Juan"})
        assert status == 202, answer
        return str(answer["userId"])

    async def mail_to(self, address: str, subject: str) -> Any:
        def found() -> Any:
            return [
                m for m in ask(self.outside("/mails"))[1] if m["to"] == address and subject in m["subject"]
            ]

        async def look() -> Any:
            return found()

        [mail] = await eventually(look, within=60)
        return mail

    async def user_has(self, user: str, field: str) -> str:
        async def look() -> Any:
            return ask(self.app(f"/users/{user}"))[1][field]

        return str(await eventually(look, within=60))

    def add_verified(self, municipality: str, count: int) -> None:
        with closing(sqlite3.connect(self.directory / "ceres.db")) as connection, connection:
            connection.executemany(
                "INSERT INTO users (id, municipality, email, first_name, verified) VALUES (?, ?, ?, 'Ana', 1)",
                [(f"{municipality}-{n}", municipality, f"{n}@{municipality}.example") for n in range(count)],
            )


@pytest.fixture(name="platform")
async def prepare(store: Store, server_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    """In database 5, as its page says; afterwards nothing is out of place there, and nothing is elsewhere."""
    url = server_url.replace("db=0", "db=5")
    platform = Platform(tmp_path, url)
    yield platform
    platform.close()
    theirs = Store(url, "ceres")
    await theirs.open()
    names = (await theirs.server.call("SCAN", b"0", "COUNT", 10_000))[1]
    faults = await every_fault(theirs)
    await theirs.close()
    assert faults == []
    assert names and all(name.startswith((b"{ceres:", b"{ceres}")) for name in names), names
    assert await store.server.call("DBSIZE") == 0


async def test_people_are_written_to_and_the_team_hears_of_dead_letters_once(platform: Platform) -> None:
    await platform.start_all()
    ask(platform.outside("/slack/break"), "POST")
    platform.act("/api/queues/slack/settings", "PUT", {"retry": {"attempts": 1}})
    platform.act("/api/queues/daily-report/run")

    async def lost_report() -> Any:
        return platform.act("/api/queues/slack/stats", "GET")["failed"] == 1

    await eventually(lost_report, within=60)
    ask(platform.outside("/slack/mend"), "POST")
    refused, busy = platform.register("refused@example.com"), platform.register("busy@example.com")
    juan = platform.register("juan@example.com")
    token = re.search(r"/verify/(\S+)", (await platform.mail_to("juan@example.com", "Welcome"))["text"])
    assert token is not None
    verified = ask(platform.app(f"/verify/{token[1]}"))
    again = ask(platform.app(f"/verify/{token[1]}"))[0]
    welcomed = await platform.mail_to("juan@example.com", "You are in")
    await platform.mail_to("busy@example.com", "Welcome")

    async def heard() -> Any:
        return ask(platform.outside("/slack"))[1]

    said = await eventually(heard, within=60)
    dead = platform.act(f"/api/queues/email/jobs/email%3Averify%3A{refused}", "GET")
    later = platform.act(f"/api/queues/email/jobs/email%3Averify%3A{busy}", "GET")
    queues = platform.run("honcho run qbull queues")
    schedules = platform.run("honcho run qbull schedules")

    assert all(name in queues for name in ("email", "slack", "maintenance", "files"))
    assert re.search(r"daily-report .* 09:00:00 -03", schedules)
    assert verified == (200, {"userId": juan, "verified": True})
    assert again == 404
    assert welcomed["id"] == f"<email.welcome.{juan}@example.com>"
    assert (dead["state"], dead["attempt"]) == ("failed", 1)
    assert later["attempt"] == 2
    assert f"email:verify:{refused}" in str(said)
    assert "there is nobody of that name" in str(said)
    assert 'queue "slack"' not in str(said)
    assert ask(platform.app("/ceres/users"), "POST", {"email": "x"})[0] == 422
    assert ask(platform.app("/atlantis/users"), "POST", {"email": "x", "first_name": "x"})[0] == 404


async def test_newsletters_go_out_in_fair_shares_and_never_too_fast(platform: Platform) -> None:
    await platform.start_all()
    platform.add_verified("ceres", 30)
    platform.add_verified("suardi", 1)
    platform.act("/api/queues/email/pause")
    letter = {"issue": "2026-11", "subject": "Feria", "text": "El domingo."}

    sent = [
        ask(platform.app(f"/{name}/newsletter"), "POST", letter)[1] for name in ("ceres", "ceres", "suardi")
    ]
    platform.act("/api/queues/email/resume")

    async def all_sent() -> Any:
        mails = ask(platform.outside("/mails"))[1]
        return mails if len(mails) == 31 else None

    mails = await eventually(all_sent, within=60)

    async def all_settled() -> Any:
        jobs = platform.act("/api/queues/email/jobs?state=completed&start=0&end=100", "GET")["jobs"]
        return jobs if len(jobs) == 31 else None

    starts = sorted(
        datetime.fromisoformat(job["startedAt"]) for job in await eventually(all_settled, within=60)
    )
    assert sent == [{"mails": 30}, {"mails": 0}, {"mails": 1}]
    assert [mail["to"] for mail in mails].index("0@suardi.example") < 12
    assert (starts[-1] - starts[0]).total_seconds() >= 2.9, "31 starts, at most 10 in any second"


async def test_files_are_looked_at_and_made_small(platform: Platform) -> None:
    await platform.start_all()
    good, bad = platform.register("ana@example.com"), platform.register("eva@example.com")
    photo = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    Image.new("RGB", (1600, 800), "green").save(photo, "JPEG", exif=exif)

    ask(platform.app(f"/users/{good}/picture"), "PUT", photo.getvalue())
    ask(platform.app(f"/users/{good}/cv"), "PUT", b"%PDF-1.7\n1 0 obj\nendobj\n%%EOF\n")
    ask(platform.app(f"/users/{bad}/picture"), "PUT", b"no picture")
    ask(platform.app(f"/users/{bad}/cv"), "PUT", b"PK a document of another kind")
    small = await platform.user_has(good, "picture")

    with Image.open(platform.directory / "uploads" / small) as picture:
        assert (picture.format, picture.size, dict(picture.getexif())) == ("WEBP", (256, 512), {})
    assert await platform.user_has(good, "cv") == "valid"
    assert await platform.user_has(bad, "picture") == "refused: not a picture that we can read"
    assert await platform.user_has(bad, "cv") == "refused: not a whole PDF"


@needs_tool(shutil.which("curl"), "there is no curl here")
async def test_every_line_of_the_page_is_answered(platform: Platform) -> None:
    await platform.start_all()
    app, outside = (f"localhost:{platform.ports[name]}" for name in ("APP_PORT", "OUTSIDE_PORT"))
    Image.new("RGB", (64, 64), "green").save(platform.directory / "me.jpg")
    (platform.directory / "cv.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\nendobj\n%%EOF\n")

    user = platform.curl(
        """curl -d '{"email": "juan@example.com", "first_name": "Juan"}' localhost:3000/ceres/users""",
        port3000=app,
    )["userId"]
    mail = await platform.mail_to("juan@example.com", "Welcome")
    token = mail["text"].partition("/verify/")[2].split()[0]
    mails = platform.curl("curl localhost:3060/mails", port3060=outside)
    verified = platform.curl("curl localhost:3000/verify/TOKEN", port3000=app, TOKEN=token)
    letter = platform.curl(
        """curl -d '{"issue": "2026-11", "subject": "Feria", "text": "El domingo."}' localhost:3000/ceres/newsletter""",
        port3000=app,
    )
    for line in (
        "curl -X PUT --data-binary @me.jpg localhost:3000/users/USER/picture",
        "curl -X PUT --data-binary @cv.pdf localhost:3000/users/USER/cv",
        "curl localhost:3000/users/USER",
    ):
        platform.curl(line, port3000=app, USER=user)

    assert [one["to"] for one in mails] == ["juan@example.com"]
    assert verified == {"userId": user, "verified": True}
    assert letter == {"mails": 1}
    assert await platform.user_has(user, "cv") == "valid"
    assert "0" in platform.run("honcho run qbull redrive email")


def test_in_production_the_same_three_processes_run_without_what_is_outside() -> None:
    production = (EXAMPLES / "platform" / "Procfile").read_text()
    development = (EXAMPLES / "platform" / "Procfile.dev").read_text()

    assert [line.partition(":")[0] for line in production.splitlines()] == ["app", "worker", "ui"]
    assert development == f"{production}outside: python outside.py\n"
