"""Who may use the API: tokens, basic auth, sessions. Nothing is open that does not say so."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from web import ADMIN, PASSWORD, VIEWER, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

import qbull
from conftest import eventually
from qbull.api.auth import address_of
from qbull.store.store import Store
from qbull.store.verbs import sessions, tokens


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def test_nobody_gets_in_without_a_proof(nobody: Person) -> None:
    answer = await nobody.ask("GET", "/api/queues/stats")

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="qbull", Basic realm="qbull"'


async def test_a_browser_is_not_made_to_ask_for_a_password(nobody: Person) -> None:
    answer = await nobody.ask("GET", "/api/me", headers={"sec-fetch-mode": "cors"})

    assert "Basic" not in answer.headers["www-authenticate"]


async def test_the_tokens_of_the_environment_have_their_roles(admin: Person, viewer: Person) -> None:
    assert ((await admin.get("/api/me"))["role"], (await viewer.get("/api/me"))["role"]) == (
        "admin",
        "viewer",
    )


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong",
        "Bearer",
        "Bearer qb_0000000000_x",
        "Basic ###",
        "Basic " + base64.b64encode(b"\xff").decode(),
        "Digest x",
        "",
    ],
)
async def test_a_wrong_proof_is_refused(nobody: Person, header: str) -> None:
    await nobody.refused(401, "GET", "/api/me", headers={"authorization": header})


async def test_a_token_that_was_made_works_until_it_is_revoked(admin: Person, web: Web) -> None:
    made = await admin.post("/api/tokens", {"name": "grafana", "role": "viewer"})
    grafana = await web.person(made["token"])

    assert (await grafana.get("/api/me"))["name"] == "grafana"
    assert (await admin.get("/api/tokens"))["tokens"][0]["lastUsedAt"] is not None

    await admin.delete(f"/api/tokens/{made['details']['id']}")
    await grafana.refused(401, "GET", "/api/me")
    assert (await admin.get("/api/tokens"))["tokens"] == []


async def test_a_token_that_another_process_revokes_is_refused_soon(
    admin: Person, web: Web, store: Store
) -> None:
    made = await admin.post("/api/tokens", {"name": "grafana", "role": "viewer"})
    grafana = await web.person(made["token"])
    await grafana.get("/api/me")

    await tokens.revoke(store, made["details"]["id"])

    async def refused() -> bool:
        return (await grafana.ask("GET", "/api/me")).status_code == 401

    await eventually(refused)
    assert await store.server.call("HLEN", store.names.tokens_used) == 0


@pytest.mark.parametrize("lost", [("EVALSHA", "EVAL"), ("HDEL",)])
async def test_a_lost_reply_neither_doubles_a_token_nor_hides_that_it_was_revoked(
    store: Store, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...]
) -> None:
    call, losing = store.server.call, list(lost)

    async def lose_one(*command: Any, **options: Any) -> Any:
        reply = await call(*command, **options)
        if command[0] in losing:
            losing.clear()
            raise qbull.ServerAway("the reply is lost")
        return reply

    monkeypatch.setattr(store.server, "call", lose_one)
    made, _ = await tokens.create(store, "grafana", "viewer", by="ada")
    there = await tokens.list_all(store)
    await tokens.revoke(store, made.id)

    assert [token.id for token in there] == [made.id]
    assert losing == await tokens.list_all(store) == []


async def test_a_token_expires(admin: Person, web: Web) -> None:
    made = await admin.post("/api/tokens", {"name": "brief", "role": "viewer", "expiresIn": 0.2})
    brief = await web.person(made["token"])

    async def refused() -> bool:
        return (await brief.ask("GET", "/api/me")).status_code == 401

    await eventually(refused)


async def test_what_the_server_knows_of_a_token_opens_no_door(admin: Person, store: Store) -> None:
    made = await admin.post("/api/tokens", {"name": "x", "role": "admin"})
    text = made["token"]

    kept = b"".join(await store.server.call("HVALS", store.names.tokens))

    assert text.encode() not in kept and text.split("_", 2)[2].encode() not in kept
    assert hashlib.sha256(text.encode()).hexdigest().encode() in kept
    assert len(text.split("_", 2)[2]) >= 43, "256 bits"


async def test_a_token_with_the_right_id_and_a_wrong_secret_is_refused(admin: Person, web: Web) -> None:
    made = await admin.post("/api/tokens", {"name": "x", "role": "admin"})
    id = made["details"]["id"]

    for wrong in (f"qb_{id}_", f"qb_{id}_{'A' * 43}", made["token"][:-1], made["token"] + "A"):
        await (await web.person(wrong)).refused(401, "GET", "/api/me")


async def test_basic_auth_is_for_tools(nobody: Person, admin: Person) -> None:
    made = await admin.post("/api/tokens", {"name": "tool", "role": "viewer"})

    by_password = await nobody.ask("GET", "/api/me", headers=basic("admin", PASSWORD))
    by_token = await nobody.ask("GET", "/api/me", headers=basic("anything", made["token"]))
    fixed = await nobody.ask("GET", "/api/me", headers=basic("x", VIEWER))

    assert [a.json()["role"] for a in (by_password, by_token, fixed)] == ["admin", "viewer", "viewer"]
    for user, password in (("admin", "wrong"), ("root", PASSWORD), ("admin", "")):
        await nobody.refused(401, "GET", "/api/me", headers=basic(user, password))


async def test_a_person_logs_in_and_out(nobody: Person) -> None:
    same = {"sec-fetch-site": "same-origin"}
    answer = await nobody.ask("POST", "/api/login", {"password": PASSWORD}, headers=same)
    cookie = answer.headers["set-cookie"]

    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    me = await nobody.get("/api/me")
    assert (me["name"], me["role"], me["how"]) == ("admin", "admin", "session")

    old = nobody.client.cookies["qbull_session"]
    await nobody.ask("POST", "/api/logout", headers=same)
    await nobody.refused(401, "GET", "/api/me", headers={"cookie": f"qbull_session={old}"})


async def test_a_session_opened_with_a_token_has_its_role_and_ends_with_it(
    nobody: Person, admin: Person, web: Web
) -> None:
    made = await admin.post("/api/tokens", {"name": "ada", "role": "viewer"})

    await nobody.post("/api/login", {"token": made["token"]})
    assert (await nobody.get("/api/me"))["name"] == "ada"
    await admin.delete(f"/api/tokens/{made['details']['id']}")

    await nobody.refused(401, "GET", "/api/me")


@pytest.mark.parametrize(
    ("proof", "other"),
    [
        ({"password": PASSWORD}, {"password": "another password"}),
        ({"token": ADMIN}, {"admin_token": "another-token-of-the-admin"}),
        ({"token": VIEWER}, {"viewer_token": "another-token-of-the-viewer"}),
        ({"token": ADMIN}, {"admin_token": None}),
    ],
)
async def test_a_session_ends_when_the_secret_that_opened_it_is_changed(
    app: qbull.App, nobody: Person, web: Web, proof: dict[str, str], other: dict[str, Any]
) -> None:
    secrets: dict[str, Any] = {"password": PASSWORD, "admin_token": ADMIN, "viewer_token": VIEWER}
    await nobody.post("/api/login", proof)
    cookie = {"cookie": f"qbull_session={nobody.client.cookies['qbull_session']}"}

    async with opened(app) as same, opened(app, qbull.Access(**secrets | other)) as changed:
        assert (await (await same.person()).ask("GET", "/api/me", headers=cookie)).status_code == 200
        why = await (await changed.person()).refused(401, "GET", "/api/me", headers=cookie)

    assert why == "what this session was opened with has been changed; log in again"


async def test_what_the_server_knows_of_a_session_says_nothing_of_the_password(
    nobody: Person, store: Store
) -> None:
    await nobody.post("/api/login", {"password": PASSWORD})
    text = nobody.client.cookies["qbull_session"]

    digest = hashlib.sha256(text.encode()).hexdigest()[:40]
    kept = await store.server.call("GET", store.names.session(digest))

    assert text.encode() not in kept
    assert hashlib.sha256(PASSWORD.encode()).hexdigest().encode() not in kept


async def test_every_log_in_is_a_new_session(nobody: Person) -> None:
    await nobody.post("/api/login", {"password": PASSWORD})
    first = nobody.client.cookies["qbull_session"]
    await nobody.post("/api/login", {"password": PASSWORD})

    assert nobody.client.cookies["qbull_session"] != first


async def test_a_session_ends_when_it_is_idle_and_at_its_last_moment(app: qbull.App) -> None:
    async with opened(app, qbull.Access(password=PASSWORD, session_idle=1.0, session_longest=3600)) as web:
        person = await web.person()
        await person.post("/api/login", {"password": PASSWORD})
        digest = hashlib.sha256(person.client.cookies["qbull_session"].encode()).hexdigest()[:40]
        store = app._client().store

        async def gone() -> bool:
            return not await store.server.call("EXISTS", store.names.session(digest))

        await eventually(gone)
        await eventually(partial(_is_refused, person))


async def test_no_use_takes_a_session_beyond_its_last_moment(store: Store) -> None:
    seconds, _ = await store.server.call("TIME")
    session = sessions.Session("ada", "viewer", 0, int(seconds) * 1000 + 2_000)
    text = await sessions.create(store, session, idle=3600)

    assert await sessions.find(store, text, 3600) == session
    digest = hashlib.sha256(text.encode()).hexdigest()[:40]
    assert await store.server.call("PTTL", store.names.session(digest)) <= 2_000


async def test_all_sessions_can_be_ended(nobody: Person, admin: Person) -> None:
    await nobody.post("/api/login", {"password": PASSWORD})

    assert "1 sessions" in (await admin.delete("/api/sessions"))["message"]
    await nobody.refused(401, "GET", "/api/me")


async def test_who_logs_in_while_all_sessions_are_ended_can_be_shut_out_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, begun = store.server.call, list[str]()
    session = sessions.Session("ada", "admin", 0, 1 << 42)

    async def log_in_meanwhile(*command: Any, **options: Any) -> Any:
        reply = await call(*command, **options)
        if command[0] == "ZRANGE" and not begun:
            begun.append(await sessions.create(store, session, idle=60))
        return reply

    monkeypatch.setattr(store.server, "call", log_in_meanwhile)
    await sessions.create(store, session, idle=60)

    assert [await sessions.end_all(store), await sessions.end_all(store)] == [1, 1]
    assert await sessions.find(store, begun[0], idle=60) is None


async def test_wrong_passwords_are_limited_for_an_address(nobody: Person, web: Web, store: Store) -> None:
    for _ in range(sessions.MAX_LOGIN_ATTEMPTS):
        await nobody.refused(401, "POST", "/api/login", {"password": "wrong"})

    limited = await nobody.ask("POST", "/api/login", {"password": PASSWORD})
    assert limited.status_code == 429 and int(limited.headers["retry-after"]) > 0
    await nobody.refused(429, "GET", "/api/me", headers=basic("admin", PASSWORD))
    assert (await (await web.person(ADMIN)).get("/api/me"))["role"] == "admin", "a token is not concerned"


async def test_many_tries_at_once_are_counted_before_any_is_looked_at(store: Store) -> None:
    waits = [await sessions.count_attempt(store, "10.0.0.1") for _ in range(sessions.MAX_LOGIN_ATTEMPTS + 3)]

    assert [wait > 0 for wait in waits] == [False] * sessions.MAX_LOGIN_ATTEMPTS + [True] * 3


@pytest.mark.parametrize(
    ("client", "source"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("a socket", "a socket"),
    ],
)
def test_tries_are_counted_for_an_address_or_for_a_network_of_ipv6(client: str, source: str) -> None:
    assert address_of(Request({"type": "http", "headers": [], "client": (client, 0)})) == source


async def test_one_who_guesses_from_many_addresses_is_slowed_down_too(store: Store) -> None:
    addresses = [f"10.0.{n // 250}.{n % 250}" for n in range(sessions.MAX_TOTAL_LOGIN_ATTEMPTS)]
    first = [await sessions.count_attempt(store, address) for address in addresses]

    guesses = 1
    while not await sessions.count_attempt(store, addresses[0]):
        guesses += 1

    assert not any(first)
    assert guesses == sessions.MAX_LOGIN_ATTEMPTS_OF_MANY < sessions.MAX_LOGIN_ATTEMPTS


async def test_wrong_passwords_from_many_addresses_lock_nobody_else_out(store: Store) -> None:
    for n in range(34):
        for _ in range(sessions.MAX_LOGIN_ATTEMPTS):
            await sessions.count_attempt(store, f"10.0.0.{n}")

    right = await sessions.count_attempt(store, "192.0.2.1", True)
    mistyped = await sessions.count_attempt(store, "192.0.2.1")
    right_again = await sessions.count_attempt(store, "192.0.2.1", True)

    assert [right, mistyped, right_again] == [0, 0, 0]
    assert await sessions.count_attempt(store, "10.0.0.1", True) > 0


async def test_a_right_password_forgives_the_wrong_ones(nobody: Person) -> None:
    for _ in range(sessions.MAX_LOGIN_ATTEMPTS - 1):
        await nobody.refused(401, "POST", "/api/login", {"password": "wrong"})
    await nobody.post("/api/login", {"password": PASSWORD})

    await nobody.refused(401, "POST", "/api/login", {"password": "wrong"})


async def test_a_right_password_many_times_at_once_is_no_guessing(
    nobody: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_one, forgive, tried, all_at_once = (
        sessions.count_attempt,
        sessions.clear_attempts,
        list[int](),
        asyncio.Event(),
    )

    async def attempt(*args: Any) -> int:
        tried.append(await try_one(*args))
        if len(tried) == sessions.MAX_LOGIN_ATTEMPTS * 3:
            all_at_once.set()
        return tried[-1]

    async def right(*args: Any) -> None:
        await all_at_once.wait()
        await forgive(*args)

    monkeypatch.setattr(sessions, "count_attempt", attempt)
    monkeypatch.setattr(sessions, "clear_attempts", right)
    asked = [
        nobody.ask("GET", "/api/me", headers=basic("admin", PASSWORD))
        for _ in range(sessions.MAX_LOGIN_ATTEMPTS * 3)
    ]
    answers = await asyncio.gather(*asked)

    assert {answer.status_code for answer in answers} == {200}


async def test_without_a_password_only_tokens_open_the_door(app: qbull.App) -> None:
    async with opened(app, qbull.Access(admin_token=ADMIN)) as web:
        nobody = await web.person()

        assert "QBULL_PASSWORD" in await nobody.refused(401, "POST", "/api/login", {"password": ""})
        await nobody.refused(401, "GET", "/api/me", headers=basic("admin", ""))


async def test_a_log_in_needs_one_of_the_two(nobody: Person) -> None:
    await nobody.refused(400, "POST", "/api/login", {})
    await nobody.refused(400, "POST", "/api/login", {"password": "x", "token": "y"})


async def test_with_tls_the_cookie_is_bound_to_this_host(app: qbull.App) -> None:
    api = qbull.asgi(app, qbull.Access(password=PASSWORD))
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="https://localhost") as client:
        answer = await client.post("/api/login", json={"password": PASSWORD})

        assert answer.headers["set-cookie"].startswith("__Host-qbull_session=")
        assert "; Secure" in answer.headers["set-cookie"] and "; Path=/;" in answer.headers["set-cookie"]
        assert "strict-transport-security" in answer.headers
        assert (await client.get("/api/me")).status_code == 200
    await api.close()


async def _is_refused(person: Person) -> bool:
    return (await person.ask("GET", "/api/me")).status_code == 401
