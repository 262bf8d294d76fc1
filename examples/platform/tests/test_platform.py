"""The platform without its servers: what is enqueued for whom, and what the API refuses.

`inline` runs no server. The mail server is a list. Tests of order and limits would use `qbull_server`.
"""

import smtplib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ceres
import emails
import files
import pytest
from starlette.testclient import TestClient
from upkeep import daily_report
from web import web

import database
import qbull
from qbull import testing

ANA = {"email": "ana@example.com", "first_name": "Ana"}


@pytest.fixture(autouse=True)
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recipients of all mails."""
    monkeypatch.setattr(database, "DATABASE", str(tmp_path / "ceres.db"))
    monkeypatch.setattr(files, "UPLOADS", tmp_path / "uploads")
    monkeypatch.setattr("web.UPLOADS", tmp_path / "uploads")
    mails: list[str] = []

    class Postbox:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __enter__(self) -> "Postbox":
            return self

        def __exit__(self, *_: object) -> None: ...

        def send_message(self, mail: Any) -> None:
            if mail["To"].startswith("refused@"):
                raise smtplib.SMTPRecipientsRefused({mail["To"]: (550, b"nobody of that name")})
            mails.append(mail["To"])

    monkeypatch.setattr(smtplib, "SMTP", Postbox)
    return mails


@pytest.fixture
def client(qbull_inline: testing.inline) -> TestClient:
    return TestClient(web)


def test_a_new_user_gets_a_mail_once(
    client: TestClient, qbull_inline: testing.inline, sent: list[str]
) -> None:
    answer = client.post("/ceres/users", json=ANA)

    user = answer.json()["userId"]
    call = qbull_inline.assert_enqueued("email/verify", user_id=user, municipality="ceres")
    assert (answer.status_code, call.id, call.key) == (202, f"email:verify:{user}", "ceres")
    assert sent == ["ana@example.com"]


def test_a_token_is_good_once(client: TestClient, qbull_inline: testing.inline, sent: list[str]) -> None:
    client.post("/ceres/users", json=ANA)
    token = qbull_inline.enqueued("email/verify")[0].arguments["token"]

    assert [client.get(f"/verify/{token}").status_code for _ in range(2)] == [200, 404]
    assert sent == ["ana@example.com"] * 2


def test_an_address_that_does_not_exist_is_not_tried_again(sent: list[str]) -> None:
    with testing.inline(ceres.app, propagate=False):
        job = emails.welcome.enqueue_sync("ceres", "u1", "refused@example.com", "Ana")
        info = ceres.app.run_sync(job.info())

    assert info is not None and (info.state, info.attempt) == ("failed", 1)


def test_the_report_goes_to_slack(qbull_inline: testing.inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messages.WEBHOOK", "https://hooks.slack.com/services/x")
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: nullcontext())
    database.add_user("ceres", "ana@example.com", "Ana")

    daily_report.enqueue_sync()

    call = qbull_inline.assert_enqueued("slack/alert")
    assert call.arguments["text"] == "Good morning. Registered: ceres 1."


@pytest.mark.parametrize(
    ("method", "path", "sent_body", "status"),
    [
        ("POST", "/atlantis/users", {"json": ANA}, 404),
        ("POST", "/ceres/users", {"content": b"no json"}, 400),
        ("POST", "/ceres/users", {"json": {**ANA, "first_name": "x" * 201}}, 422),
        ("POST", "/ceres/users", {"json": {**ANA, "email": "not an address"}}, 422),
        ("POST", "/ceres/users", {"json": {**ANA, "admin": True}}, 422),
        ("POST", "/ceres/users", {"content": b" " * 300_000}, 413),
        ("POST", "/ceres/newsletter", {"json": {"issue": "1", "subject": "x", "text": "x" * 100_001}}, 422),
        ("PUT", "/users/nobody/cv", {"content": b"x"}, 404),
    ],
)
def test_bad_input_is_refused(
    client: TestClient, method: str, path: str, sent_body: dict[str, Any], status: int
) -> None:
    assert client.request(method, path, **sent_body).status_code == status


def test_a_file_that_is_too_large_is_refused(client: TestClient, qbull_inline: testing.inline) -> None:
    user, _ = database.add_user("ceres", "ana@example.com", "Ana")

    answer = client.put(f"/users/{user}/cv", content=b"x" * 5_000_001)

    assert answer.status_code == 413
    qbull_inline.assert_not_enqueued()


async def test_a_cv_is_looked_at(qbull_server: testing.embedded) -> None:
    user, _ = database.add_user("ceres", "ana@example.com", "Ana")
    files.UPLOADS.mkdir()
    (files.UPLOADS / "digest").write_bytes(b"%PDF-1.7\n%%EOF\n")

    await files.validate_cv.enqueue("ceres", user, "digest")
    await qbull_server.run_due()

    found = database.user(user)
    assert found is not None and found["cv"] == "valid"


def test_maintenance_runs_one_job_at_a_time_over_all_workers() -> None:
    maintenance: qbull.Queue = ceres.app.queues["maintenance"]

    assert maintenance.settings.max_active == 1
