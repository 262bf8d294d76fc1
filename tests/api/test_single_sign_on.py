"""Single sign-on: people log in at a real OpenID Connect provider, and nothing but its word lets them in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from provider import CLIENT_ID, CLIENT_SECRET, Provider, SigningKey, encoded, packed, running_provider
from web import ACCESS, ADMIN, PASSWORD, Web, opened

import qbull
from qbull.api import oidc
from qbull.api.auth import SESSION_COOKIE
from qbull.environment import read_environment
from qbull.errors import ConfigError
from topology import free_port

CALLBACK = "/api/oidc/callback"


class Browser:
    """A browser of somebody: it keeps cookies, and follows redirects one at a time."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def go(self, address: str) -> httpx.Response:
        return await self.client.get(address)

    async def start(self, view: str = "/ui/queues") -> str:
        """Press the button; the address at the provider."""
        answer = await self.client.get("/api/oidc/login", params={"view": view})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    async def come_back(self, address: str) -> str:
        """Log in at the provider; the address that it sends the browser back to."""
        return (await self.go(address)).headers["location"]

    async def log_in(self, view: str = "/ui/queues") -> httpx.Response:
        """The whole way; the answer to the last step."""
        return await self.go(await self.come_back(await self.start(view)))

    async def me(self) -> dict[str, Any]:
        answer = await self.client.get("/api/me")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def is_in(self) -> bool:
        return (await self.client.get("/api/me")).status_code == 200


class SignOn:
    """A provider, and a server that trusts it."""

    def __init__(self, provider: Provider, web: Web, access: qbull.Access) -> None:
        self.provider, self.web, self.access = provider, web, access

    def browser(self) -> Browser:
        client = httpx.AsyncClient(base_url=self.web.url, trust_env=False, timeout=30)
        self.web._stack.push_async_callback(client.aclose)
        return Browser(client)


@asynccontextmanager
async def signing_on(app: qbull.App, **settings: Any) -> AsyncIterator[SignOn]:
    port = free_port()
    async with running_provider() as provider:
        said = {
            "operators": ("ops",),
            "admins": ("root",),
            "public_url": f"http://127.0.0.1:{port}",
            **settings,
        }
        sign_on = qbull.SingleSignOn(provider.issuer, CLIENT_ID, client_secret=CLIENT_SECRET, **said)
        access = replace(ACCESS, single_sign_on=sign_on)
        async with opened(app, access, port=port) as web:
            yield SignOn(provider, web, access)


@pytest.fixture
async def sign_on(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SignOn]:
    monkeypatch.setenv("no_proxy", "*")
    async with signing_on(app) as sign_on:
        yield sign_on


async def test_somebody_logs_in_with_the_role_of_his_groups_and_out(sign_on: SignOn) -> None:
    browser = sign_on.browser()

    answer = await browser.log_in("/ui/queues?state=failed")

    assert answer.status_code == 303
    assert answer.headers["location"] == f"{sign_on.web.url}/ui/queues?state=failed"
    me = await browser.me()
    assert (me["name"], me["role"], me["how"]) == ("ada@example.com", "operator", "session")
    cookies = answer.headers.get_list("set-cookie")
    [session] = [cookie for cookie in cookies if cookie.startswith(f"{SESSION_COOKIE}=")]
    assert "HttpOnly; SameSite=Strict" in session
    assert any(cookie.startswith("qbull_login=;") for cookie in cookies), "a log-in is for once"

    own_page = {"origin": sign_on.web.url}
    assert (await browser.client.post("/api/logout", headers=own_page)).status_code == 200
    assert not await browser.is_in()


async def log_out(sign_on: SignOn, browser: Browser) -> dict[str, Any]:
    answer = await browser.client.post("/api/logout", headers={"origin": sign_on.web.url})
    assert answer.status_code == 200, answer.text
    assert not await browser.is_in()
    return dict(answer.json())


async def test_a_browser_that_logs_out_ends_its_session_at_the_provider_too(sign_on: SignOn) -> None:
    browser = sign_on.browser()
    await browser.log_in()

    provider = (await log_out(sign_on, browser))["provider"]
    back = await browser.go(provider)

    assert provider.startswith(f"{sign_on.provider.issuer}/logout?ui=1&client_id={CLIENT_ID}&")
    assert back.headers["location"] == f"{sign_on.web.url}/ui/"
    [asked] = sign_on.provider.logged_out
    told = json.loads(base64.urlsafe_b64decode(asked["id_token_hint"].split(".")[1] + "=="))
    assert told["sub"] == "u1"


async def test_a_log_out_needs_no_provider_that_ends_sessions(sign_on: SignOn) -> None:
    sign_on.provider.ends_sessions = False
    browser = sign_on.browser()
    await browser.log_in()

    assert (await log_out(sign_on, browser))["provider"] is None


async def test_a_log_out_works_if_the_provider_cannot_be_asked(
    sign_on: SignOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = sign_on.browser()
    await browser.log_in()
    monkeypatch.setattr(oidc, "PROVIDER_CACHE_SECONDS", -1.0)
    sign_on.provider.issuer = "http://127.0.0.1:1/elsewhere"

    assert (await log_out(sign_on, browser))["provider"] is None


async def test_a_session_by_password_has_nothing_to_end_at_the_provider(sign_on: SignOn) -> None:
    browser = sign_on.browser()
    own_page = {"origin": sign_on.web.url}
    assert (
        await browser.client.post("/api/login", json={"password": PASSWORD}, headers=own_page)
    ).status_code == 200

    assert (await log_out(sign_on, browser))["provider"] is None
    assert sign_on.provider.logged_out == []


async def test_the_cookie_is_that_of_a_password(sign_on: SignOn) -> None:
    browser, other = sign_on.browser(), sign_on.browser()
    by_provider = await browser.log_in()
    by_password = await other.client.post("/api/login", json={"password": PASSWORD})

    def shape(answer: httpx.Response) -> list[str]:
        [cookie] = [text for text in answer.headers.get_list("set-cookie") if text.startswith(SESSION_COOKIE)]
        return cookie.split("; ")[1:]

    assert shape(by_provider) == shape(by_password)


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"groups": ["guests", "root", "ops"]}, "admin"),
        ({"groups": "ops"}, "operator"),
        ({"groups": ["guests"]}, None),
        ({"groups": []}, None),
        ({"groups": None}, None),
        ({"groups": {"ops": True}}, None),
        ({"groups": 7}, None),
        ({"roles": ["root"]}, None),
    ],
)
async def test_the_strongest_role_of_the_claim_counts(
    claims: dict[str, Any], role: str | None, sign_on: SignOn
) -> None:
    del sign_on.provider.person["groups"]
    sign_on.provider.person |= claims
    browser = sign_on.browser()

    answer = await browser.log_in()

    if role is None:
        assert answer.status_code == 403 and "has no role here" in answer.json()["detail"]
        assert not await browser.is_in()
    else:
        assert (await browser.me())["role"] == role


async def test_the_claim_may_be_inside_another_one(app: qbull.App) -> None:
    async with signing_on(app, role_claim="realm_access.roles", viewers=("*",)) as sign_on:
        browser, guest = sign_on.browser(), sign_on.browser()
        sign_on.provider.person["realm_access"] = {"roles": ["root"]}
        await browser.log_in()
        sign_on.provider.person["realm_access"] = "nonsense"
        await guest.log_in()

        assert (await browser.me())["role"] == "admin"
        assert (await guest.me())["role"] == "viewer", "everybody may look"


async def test_tokens_and_the_password_work_as_before(sign_on: SignOn) -> None:
    admin = await sign_on.web.person(ADMIN)
    assert (await admin.get("/api/me"))["role"] == "admin"

    browser = sign_on.browser()
    await browser.client.post("/api/login", json={"password": PASSWORD})
    assert (await browser.me())["name"] == "admin"
    assert sign_on.provider.asked == [], "nobody asked the provider"


async def test_the_audit_log_names_who_logged_in(sign_on: SignOn) -> None:
    await sign_on.browser().log_in()
    sign_on.provider.person["groups"] = []
    await sign_on.browser().log_in()

    admin = await sign_on.web.person(ADMIN)
    [refused, logged_in, *_] = (await admin.get("/api/audit"))["entries"]
    assert (logged_in["who"], logged_in["action"], logged_in["status"]) == ("ada@example.com", "log in", 303)
    assert logged_in["detail"]["subject"] == "u1"
    assert (refused["who"], refused["status"]) == ("ada@example.com", 403)


async def test_nobody_takes_the_name_of_the_passwords_owner(app: qbull.App) -> None:
    async with signing_on(app, name_claim="preferred_username") as sign_on:
        sign_on.provider.person["preferred_username"] = "admin"
        browser = sign_on.browser()
        await browser.log_in()

        me = await browser.me()
        assert (me["name"], me["role"]) == ("admin (single sign-on)", "operator")


async def test_an_address_that_was_not_verified_is_no_name(sign_on: SignOn) -> None:
    sign_on.provider.person["email_verified"] = False
    browser = sign_on.browser()
    await browser.log_in()

    assert (await browser.me())["name"] == "u1"


async def test_a_key_that_the_provider_changed_is_loaded_and_the_old_one_counts_no_more(
    sign_on: SignOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "KEYS_RELOAD_SECONDS", 0.0)
    assert (await sign_on.browser().log_in()).status_code == 303
    old = sign_on.provider.keys[0]
    sign_on.provider.rotate()
    assert (await sign_on.browser().log_in()).status_code == 303
    assert sign_on.provider.asked.count("keys") == 2

    sign_on.provider.forge = old.signed
    assert (await sign_on.browser().log_in()).status_code == 401


async def test_a_session_ends_when_the_settings_change(app: qbull.App, sign_on: SignOn) -> None:
    browser = sign_on.browser()
    await browser.log_in()
    cookie = {"cookie": f"{SESSION_COOKIE}={browser.client.cookies[SESSION_COOKIE]}"}
    settings = sign_on.access.single_sign_on
    assert settings is not None

    for changed in (None, replace(settings, operators=(), viewers=("ops",))):
        async with opened(app, replace(sign_on.access, single_sign_on=changed)) as web:
            person = await web.person(**cookie)
            assert (await person.client.get("/api/me")).status_code == 401
    async with opened(app, sign_on.access) as web:
        person = await web.person(**cookie)
        assert (await person.client.get("/api/me")).status_code == 200


# Attacks.


def unsigned(claims: dict[str, Any]) -> str:
    return f"{packed({'alg': 'none', 'kid': 'first'})}.{packed(claims)}."


def signed_with_public_key(key: bytes) -> Callable[[dict[str, Any]], str]:
    def forge(claims: dict[str, Any]) -> str:
        text = f"{packed({'alg': 'HS256', 'kid': 'first'})}.{packed(claims)}"
        return f"{text}.{encoded(hmac.digest(key, text.encode(), 'sha256'))}"

    return forge


def forged_by(provider: Provider, attack: str) -> Callable[[dict[str, Any]], str]:
    key, stranger, now = provider.keys[0], SigningKey("first"), int(time.time())
    public = key.public()
    attacks: dict[str, Callable[[dict[str, Any]], str]] = {
        "no signature": unsigned,
        "the algorithm none, with a signature": lambda claims: key.signed(claims, alg="none"),
        "HS256 with the public key as PEM": signed_with_public_key(key.pem()),
        "HS256 with the modulus": signed_with_public_key(base64.urlsafe_b64decode(public["n"] + "==")),
        "HS256 with a secret of the key set": lambda claims: _with_shared_secret(claims),
        "another key under the same name": stranger.signed,
        "an unknown key": lambda claims: key.signed(claims, kid="unknown"),
        "a key in the head": lambda claims: stranger.signed(claims, kid="new", jwk=stranger.public()),
        "another audience": lambda claims: key.signed(claims | {"aud": "another"}),
        "no audience": lambda claims: key.signed({k: v for k, v in claims.items() if k != "aud"}),
        "several audiences, for another": lambda claims: key.signed(
            claims | {"aud": [CLIENT_ID, "x"], "azp": "x"}
        ),
        "several audiences, for nobody": lambda claims: key.signed(claims | {"aud": [CLIENT_ID, "x"]}),
        "another issuer": lambda claims: key.signed(claims | {"iss": "https://evil.example"}),
        "expired": lambda claims: key.signed(claims | {"iat": now - 7200, "exp": now - 3600}),
        "without end": lambda claims: key.signed({k: v for k, v in claims.items() if k != "exp"}),
        "from the future": lambda claims: key.signed(claims | {"iat": now + 3600, "exp": now + 7200}),
        "another nonce": lambda claims: key.signed(claims | {"nonce": "another"}),
        "no nonce": lambda claims: key.signed({k: v for k, v in claims.items() if k != "nonce"}),
        "changed after the signature": lambda claims: _changed(key.signed(claims)),
        "no subject": lambda claims: key.signed({k: v for k, v in claims.items() if k != "sub"}),
        "no token": lambda claims: "x",
        "an empty token": lambda claims: "..",
    }
    return attacks[attack]


def _with_shared_secret(claims: dict[str, Any]) -> str:
    text = f"{packed({'alg': 'HS256', 'kid': 'secret'})}.{packed(claims)}"
    return f"{text}.{encoded(hmac.digest(b'x' * 32, text.encode(), 'sha256'))}"


def _changed(token: str) -> str:
    head, _, signature = token.split(".")
    return f"{head}.{packed({'sub': 'u1', 'groups': ['root']})}.{signature}"


ATTACKS = (
    *("no signature", "the algorithm none, with a signature", "HS256 with the public key as PEM"),
    *("HS256 with the modulus", "HS256 with a secret of the key set", "another key under the same name"),
    *(
        "an unknown key",
        "a key in the head",
        "another audience",
        "no audience",
        "several audiences, for another",
    ),
    *("several audiences, for nobody", "another issuer", "expired", "without end", "from the future"),
    *("another nonce", "no nonce", "changed after the signature", "no subject", "no token", "an empty token"),
)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_token_that_is_not_right_lets_nobody_in(attack: str, sign_on: SignOn) -> None:
    sign_on.provider.forge = forged_by(sign_on.provider, attack)
    browser = sign_on.browser()

    answer = await browser.log_in()

    assert answer.status_code == 401, answer.text
    assert SESSION_COOKIE not in browser.client.cookies
    assert not await browser.is_in()


async def test_the_answer_to_another_log_in_is_refused(sign_on: SignOn) -> None:
    """Log-in CSRF: somebody is sent to the address with which an attacker would be logged in."""
    attacker, victim = sign_on.browser(), sign_on.browser()
    planted = await attacker.come_back(await attacker.start())

    without_any = await victim.go(planted)
    await victim.start()
    with_his_own = await victim.go(planted)

    assert (without_any.status_code, with_his_own.status_code) == (400, 400)
    assert not await victim.is_in()
    assert "token" not in sign_on.provider.asked, "the code was not even tried"


@pytest.mark.parametrize("state", ["", "wrong", None])
async def test_a_wrong_state_is_refused(state: str | None, sign_on: SignOn) -> None:
    browser = sign_on.browser()
    back = httpx.URL(await browser.come_back(await browser.start()))
    query = {name: value for name, value in back.params.items() if name != "state"}

    answer = await browser.client.get(CALLBACK, params=query if state is None else query | {"state": state})

    assert answer.status_code == 400
    assert "token" not in sign_on.provider.asked


async def test_a_code_works_once(sign_on: SignOn) -> None:
    browser = sign_on.browser()
    address = await browser.start()
    cookie = browser.client.cookies["qbull_login"]
    back = await browser.come_back(address)
    assert (await browser.go(back)).status_code == 303

    again = await browser.go(back)
    thief = sign_on.browser()
    stolen = await thief.client.get(back, headers={"cookie": f"qbull_login={cookie}"})

    assert again.status_code == 400, "the cookie of the log-in is gone"
    assert stolen.status_code == 401, "and the provider knows the code no more"
    assert not await thief.is_in()


async def test_a_stolen_code_is_worthless_without_the_verifier(sign_on: SignOn) -> None:
    victim, thief = sign_on.browser(), sign_on.browser()
    back = httpx.URL(await victim.come_back(await victim.start()))
    own = parse_qs(urlsplit(await thief.start()).query)["state"][0]

    answer = await thief.client.get(CALLBACK, params={"code": back.params["code"], "state": own})

    assert answer.status_code == 401
    assert not await thief.is_in()


async def test_the_word_of_another_provider_is_refused(sign_on: SignOn) -> None:
    """Mix-up: the answer names its issuer (RFC 9207)."""
    sign_on.provider.answer = {"iss": "https://evil.example"}

    assert (await sign_on.browser().log_in()).status_code == 400


async def test_a_refusal_of_the_provider_is_told(sign_on: SignOn) -> None:
    sign_on.provider.answer = {"error": "access_denied", "error_description": "<script>alert(1)</script>"}

    answer = await sign_on.browser().log_in()

    assert answer.status_code == 401
    assert "access_denied" in answer.text and "script" not in answer.text


@pytest.mark.parametrize(
    "view",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "/ui/../../evil",
        "/ui//evil.example",
        "/ui/\r\nSet-Cookie: a=b",
        "/uievil",
        "javascript:alert(1)",
        "/ui/" + "x" * 600,
        "/api/logout",
        "/ui/@evil.example\\",
        "",
    ],
)
async def test_nobody_is_sent_elsewhere_after_the_log_in(view: str, sign_on: SignOn) -> None:
    answer = await sign_on.browser().client.get("/api/oidc/login", params={"view": view})

    assert answer.status_code == 400
    assert "location" not in answer.headers and "set-cookie" not in answer.headers


async def test_a_planted_cookie_sends_nobody_elsewhere(sign_on: SignOn) -> None:
    """A neighbour of the host's domain can plant cookies without the prefix __Host-."""
    browser = sign_on.browser()
    await browser.start()
    cookie = browser.client.cookies["qbull_login"]
    login = json.loads(base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)))
    planted = {"cookie": f"qbull_login={packed(login | {'view': '@evil.example/'})}"}

    answer = await sign_on.browser().client.get(
        CALLBACK, params={"code": "x", "state": login["state"]}, headers=planted
    )

    assert answer.status_code == 400 and "location" not in answer.headers


async def test_whoever_guesses_codes_is_slowed_down(sign_on: SignOn) -> None:
    browser, statuses = sign_on.browser(), []
    for _ in range(12):
        state = parse_qs(urlsplit(await browser.start()).query)["state"][0]
        answer = await browser.client.get(CALLBACK, params={"code": "guess", "state": state})
        statuses.append(answer.status_code)

    assert statuses[0] == 401 and statuses[-1] == 429


async def test_a_provider_that_is_down_is_told_and_locks_nobody_else_out(app: qbull.App) -> None:
    nowhere = qbull.SingleSignOn(
        f"http://127.0.0.1:{free_port()}", CLIENT_ID, "http://127.0.0.1:3050", viewers=("*",)
    )
    async with opened(app, replace(ACCESS, single_sign_on=nowhere)) as web:
        person = await web.person()
        answer = await person.client.get("/api/oidc/login")
        assert answer.status_code == 503 and "cannot be reached" in answer.json()["detail"]
        logged_in = await person.client.post("/api/login", json={"password": PASSWORD})
        assert logged_in.status_code == 200


async def test_a_provider_that_calls_itself_otherwise_is_not_trusted(app: qbull.App) -> None:
    async with signing_on(app) as sign_on:
        sign_on.provider.issuer += "/other"
        answer = await sign_on.browser().client.get("/api/oidc/login")

        assert answer.status_code == 503


async def test_an_answer_without_end_is_not_read(sign_on: SignOn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "MAX_PROVIDER_ANSWER_BYTES", 2_000)
    sign_on.provider.person["groups"] = ["x" * 5_000]

    assert (await sign_on.browser().log_in()).status_code == 503


async def test_without_a_provider_there_are_no_such_addresses(app: qbull.App) -> None:
    async with opened(app) as web:
        person = await web.person()
        for path in ("/api/oidc/login", CALLBACK):
            assert (await person.client.get(path)).status_code == 404


# Settings.


def test_the_environment_names_the_provider() -> None:
    found = read_environment(
        {
            "QBULL_OIDC_ISSUER": "https://login.example.com",
            "QBULL_OIDC_CLIENT_ID": "qbull",
            "QBULL_OIDC_CLIENT_SECRET": "hush",
            "QBULL_PUBLIC_URL": "https://jobs.example.com",
            "QBULL_OIDC_ADMINS": "root, platform",
            "QBULL_OIDC_VIEWERS": "*",
        }
    ).access.single_sign_on

    assert found is not None
    assert (found.admins, found.viewers, found.scopes) == (
        ("root", "platform"),
        ("*",),
        ("openid", "email", "profile"),
    )
    assert found.redirect_uri == "https://jobs.example.com/api/oidc/callback"
    assert "hush" not in repr(found)
    assert found.digest != replace(found, admins=("root",)).digest
    assert hashlib.sha256(b"").digest_size * 2 == len(found.digest)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"QBULL_OIDC_ISSUER": "http://login.example.com"}, "https://"),
        ({"QBULL_PUBLIC_URL": ""}, "QBULL_PUBLIC_URL"),
        ({"QBULL_OIDC_CLIENT_ID": ""}, "QBULL_OIDC_CLIENT_ID"),
        ({"QBULL_OIDC_VIEWERS": ""}, "gives nobody a role"),
        ({"QBULL_OIDC_SCOPES": "email"}, "openid"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, str], said: str) -> None:
    right = {
        "QBULL_OIDC_ISSUER": "https://login.example.com",
        "QBULL_OIDC_CLIENT_ID": "qbull",
        "QBULL_PUBLIC_URL": "https://jobs.example.com",
        "QBULL_OIDC_VIEWERS": "*",
    }
    read_environment(right)

    with pytest.raises(ConfigError, match=said):
        read_environment(right | changed)


async def test_many_log_ins_at_once_ask_for_the_document_once(sign_on: SignOn) -> None:
    answers = await asyncio.gather(*(sign_on.browser().log_in() for _ in range(10)))

    assert [answer.status_code for answer in answers] == [303] * 10
    assert sign_on.provider.asked.count("discovery") == 1
    assert sign_on.provider.asked.count("keys") == 1
