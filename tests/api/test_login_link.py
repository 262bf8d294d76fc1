"""A login link lets somebody in once, for a short time, and its code is no cookie."""

from __future__ import annotations

import asyncio

from web import PASSWORD, Person, Web, make_admin, make_nobody, make_viewer, open_web, opened  # noqa: F401 - some are fixtures

from qbull.store.store import Store
from qbull.store.verbs import sessions


async def test_a_login_link_works_once(web: Web, nobody: Person, store: Store) -> None:
    code = await sessions.offer_login(store)

    first = await nobody.client.post("/api/login", json={"code": code})
    second = await (await web.person()).client.post("/api/login", json={"code": code})

    assert (first.status_code, second.status_code) == (200, 401)
    assert "was used or has expired" in second.json()["detail"]
    assert (await nobody.get("/api/me"))["role"] == "admin"


async def test_of_two_who_use_a_link_at_once_one_gets_in(web: Web, store: Store) -> None:
    code = await sessions.offer_login(store)
    people = [await web.person() for _ in range(5)]

    answers = await asyncio.gather(*(one.client.post("/api/login", json={"code": code}) for one in people))

    assert sorted(one.status_code for one in answers) == [200, 401, 401, 401, 401]


async def test_a_link_has_a_short_life(store: Store, nobody: Person) -> None:
    code = await sessions.offer_login(store)
    [name] = await store.server.call("KEYS", "*session:*")

    assert 0 < await store.server.call("PTTL", name) <= sessions.LOGIN_LINK_SECONDS * 1000
    await store.server.call("PEXPIRE", name, 1)
    await asyncio.sleep(0.01)
    await nobody.refused(401, "POST", "/api/login", {"code": code})


async def test_the_code_of_a_link_is_no_cookie(nobody: Person, store: Store) -> None:
    code = await sessions.offer_login(store)

    for name in ("qbull_session", "__Host-qbull_session"):
        answer = await nobody.client.get("/api/me", headers={"cookie": f"{name}={code}"})
        assert answer.status_code == 401
    await nobody.refused(401, "GET", "/api/me", headers={"authorization": f"Bearer {code}"})


async def test_the_cookie_of_a_session_is_no_code(
    admin: Person, web: Web, store: Store, nobody: Person
) -> None:
    code = await sessions.offer_login(store)
    await nobody.client.post("/api/login", json={"code": code})
    [cookie] = nobody.client.cookies.jar

    other = await web.person()
    await other.refused(401, "POST", "/api/login", {"code": cookie.value})


async def test_one_credential_is_given(nobody: Person) -> None:
    await nobody.refused(400, "POST", "/api/login", {"code": "x", "password": "y"})
    await nobody.refused(400, "POST", "/api/login", {})
