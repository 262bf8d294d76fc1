"""An OpenID Connect provider on loopback: discovery, keys that rotate, log-ins with codes and PKCE, ID tokens with RS256.

It signs with the `cryptography` library alone, so that it shares no code with the client that is tested. `forge` lets a test
hand out any token in the place of the right one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode

import uvicorn
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID, CLIENT_SECRET = "qbull", "a secret/of the+client"
CODE_SECONDS = 60


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def packed(value: dict[str, Any]) -> str:
    return encoded(json.dumps(value).encode())


class SigningKey:
    def __init__(self, kid: str) -> None:
        self.kid = kid
        self._private = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def public(self) -> dict[str, str]:
        numbers = self._private.public_key().public_numbers()
        size = (numbers.n.bit_length() + 7) // 8
        modulus, exponent = numbers.n.to_bytes(size, "big"), numbers.e.to_bytes(3, "big")
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.kid,
            "n": encoded(modulus),
            "e": encoded(exponent),
        }

    def pem(self) -> bytes:
        return self._private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def signed(self, claims: dict[str, Any], **head: Any) -> str:
        text = f"{packed({'alg': 'RS256', 'kid': self.kid, **head})}.{packed(claims)}"
        return f"{text}.{encoded(self._private.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


class Provider:
    """`person` has the claims of the next person who logs in."""

    def __init__(self) -> None:
        self.issuer = ""
        self.keys = [SigningKey("first")]
        self.person: dict[str, Any] = {"sub": "u1", "email": "ada@example.com", "groups": ["ops"]}
        self.forge: Callable[[dict[str, Any]], str] = lambda claims: self.keys[-1].signed(claims)
        self.answer: dict[str, str] = {}
        """More parameters of the way back."""
        self.asked: list[str] = []
        self.ends_sessions = True
        self.logged_out: list[dict[str, str]] = []
        self._codes: dict[str, dict[str, str]] = {}

    def rotate(self) -> None:
        """Sign with a new key, and withdraw the old one."""
        self.keys = [SigningKey(secrets.token_hex(4))]

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/openid-configuration", self.discovery),
            Route("/keys", self.key_set),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
            Route("/logout", self.log_out),
        ]

    async def discovery(self, request: Request) -> Response:
        self.asked.append("discovery")
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                **({"end_session_endpoint": f"{self.issuer}/logout?ui=1"} if self.ends_sessions else {}),
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def key_set(self, request: Request) -> Response:
        self.asked.append("keys")
        secret = {"kty": "oct", "kid": "secret", "k": encoded(b"x" * 32)}
        return JSONResponse({"keys": [secret, *(key.public() for key in self.keys)]})

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["response_type"] == "code" and asked["client_id"] == CLIENT_ID
        assert asked["code_challenge_method"] == "S256" and "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        answer = {
            "code": code,
            "state": asked["state"],
            "iss": self.issuer,
            "session_state": "x",
            **self.answer,
        }
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}")

    async def log_out(self, request: Request) -> Response:
        """End the session of a browser here, and send it back (RP-initiated logout)."""
        asked = dict(request.query_params)
        assert asked["client_id"] == CLIENT_ID
        self.logged_out.append(asked)
        return RedirectResponse(asked["post_logout_redirect_uri"])

    async def token(self, request: Request) -> Response:
        self.asked.append("token")
        form = dict(parse_qsl((await request.body()).decode()))
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        client, _, secret = base64.b64decode(rest).decode().partition(":")
        if (scheme, unquote_plus(client), unquote_plus(secret)) != ("Basic", CLIENT_ID, CLIENT_SECRET):
            return JSONResponse({"error": "invalid_client"}, 401)
        asked = self._codes.pop(form.get("code", ""), None)  # a code works once
        if asked is None or form.get("redirect_uri") != asked["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        challenge = encoded(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if not hmac.compare_digest(challenge, asked["code_challenge"]):
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse(
            {"access_token": "x", "token_type": "Bearer", "id_token": self.forge(self.claims(asked["nonce"]))}
        )

    def claims(self, nonce: str) -> dict[str, Any]:
        now = int(time.time())
        return {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            **self.person,
        }


@asynccontextmanager
async def running_provider() -> AsyncIterator[Provider]:
    provider = Provider()
    config = uvicorn.Config(Starlette(routes=provider.routes()), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    provider.issuer = f"http://127.0.0.1:{port}"
    try:
        yield provider
    finally:
        server.should_exit = True
        await serving
