"""OpenID Connect: ask a provider who somebody is. Discovery, keys, the exchange of a code, and the ID token.

The provider is asked only for log-ins that were started here. Its answers are bounded, and redirects are not
followed. An ID token counts if a key of the provider signed it with an asymmetric algorithm, and issuer,
audience, times and nonce are right.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote_plus

import httpx
import msgspec
from joserfc import jwk, jws, jwt
from joserfc.errors import JoseError

from qbull.api.problems import ApiProblem
from qbull.core.single_sign_on import SingleSignOn, check_web_address
from qbull.errors import ConfigError

T = TypeVar("T")

log = logging.getLogger("qbull.api")

SIGNATURE_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
)
"""Neither "none" nor HS256: with that, the provider's public key would be the secret."""
PROVIDER_CACHE_SECONDS = 3600.0
"""How long the discovery document and the keys are kept. A withdrawn key is trusted for as long."""
KEYS_RELOAD_SECONDS = 5.0
"""An unknown key makes the keys load again, at most this often."""
PROVIDER_TIMEOUT_SECONDS = 10.0
MAX_PROVIDER_ANSWER_BYTES = 1 << 20
CLOCK_SKEW_SECONDS = 60
MAX_EXCHANGES_AT_A_TIME = 16

_HEADERS = {"accept": "application/json"}


class ProviderMetadata(msgspec.Struct, frozen=True):
    """The parts of a discovery document that matter here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] = msgspec.field(
        default_factory=lambda: ["client_secret_basic"]
    )


class _TokenAnswer(msgspec.Struct, frozen=True):
    id_token: str


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class OidcProvider:
    """The provider that SingleSignOn names, with its keys."""

    def __init__(self, settings: SingleSignOn) -> None:
        self._settings = settings
        self._metadata: tuple[float, ProviderMetadata] | None = None
        self._keys: list[Any] = []
        self._keys_at = float("-inf")
        self._loading = asyncio.Lock()
        self._exchanging = asyncio.Semaphore(MAX_EXCHANGES_AT_A_TIME)

    async def metadata(self) -> ProviderMetadata:
        """The provider's discovery document."""
        async with self._loading:
            now = time.monotonic()
            if self._metadata is None or now - self._metadata[0] > PROVIDER_CACHE_SECONDS:
                address = self._settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
                found = _decoded(await _ask("GET", address), ProviderMetadata)
                if found.issuer != self._settings.issuer:
                    raise _refused(f'it calls itself "{found.issuer[:200]}"')
                _check_addresses(found)
                self._metadata = now, found
            return self._metadata[1]

    async def claims(self, code: str, verifier: str, nonce: str) -> tuple[str, Mapping[str, Any]]:
        """The ID token of the person who got this code, and its claims.

        Raises:
            ApiProblem: The provider does not know the code, or its ID token is not right.
        """
        async with self._exchanging:
            token = await self._exchange(code, verifier)
            return token, await self._verified(token, nonce)

    async def _exchange(self, code: str, verifier: str) -> str:
        settings, provider = self._settings, await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_uri,
            "client_id": settings.client_id,
            "code_verifier": verifier,
        }
        auth = None
        if settings.client_secret is not None:
            if "client_secret_basic" in provider.token_endpoint_auth_methods_supported:
                auth = httpx.BasicAuth(
                    _form_encoded(settings.client_id), _form_encoded(settings.client_secret)
                )
            else:
                form["client_secret"] = settings.client_secret
        raw = await _ask("POST", provider.token_endpoint, form, auth)
        return _decoded(raw, _TokenAnswer).id_token

    async def _verified(self, text: str, nonce: str) -> Mapping[str, Any]:
        settings = self._settings
        try:
            key = await self._key_of(text)
            claims: dict[str, Any] = jwt.decode(text, key, algorithms=list(SIGNATURE_ALGORITHMS)).claims
            jwt.JWTClaimsRegistry(
                leeway=CLOCK_SKEW_SECONDS,
                iss={"essential": True, "value": settings.issuer},
                aud={"essential": True, "value": settings.client_id},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
            ).validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            raise _unproven(f"its ID token is not right ({type(error).__name__})") from None
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else settings.client_id) != settings.client_id:
            raise _unproven("its ID token was issued to another client")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _unproven("its ID token belongs to another log-in")
        return claims

    async def _key_of(self, text: str) -> Any:
        """The key that signed a token, as its head names it. An unknown one may be new: keys are loaded."""
        head: Mapping[str, Any] = jws.extract_compact(text.encode()).headers()
        if head.get("alg") not in SIGNATURE_ALGORITHMS:
            raise _unproven("its ID token has no signature that counts")
        kid = head.get("kid")
        for age in (PROVIDER_CACHE_SECONDS, KEYS_RELOAD_SECONDS):
            keys = await self._loaded_keys(age)
            if kid is None and len(keys) == 1:
                return keys[0]
            for key in keys:
                if kid is not None and key.kid == kid:
                    return key
        raise _unproven("its ID token is signed with an unknown key")

    async def _loaded_keys(self, age: float) -> list[Any]:
        """The provider's keys, loaded again if they are older than that many seconds."""
        address = (await self.metadata()).jwks_uri
        async with self._loading:
            if time.monotonic() - self._keys_at > age:
                found = _decoded(await _ask("GET", address), _KeySet)
                self._keys = [key for one in found.keys for key in _signing_key(one)]
                self._keys_at = time.monotonic()
            return self._keys


def _check_addresses(found: ProviderMetadata) -> None:
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint"):
        address: str | None = getattr(found, name)
        try:
            if address is not None:
                check_web_address(address.partition("?")[0], name)
        except ConfigError as error:
            raise _refused(str(error)) from None


def _signing_key(given: dict[str, Any]) -> list[Any]:
    """A key of the provider, unless it is for encryption, is secret, or of a kind that is not known here."""
    if given.get("use", "sig") != "sig" or given.get("kty") == "oct":
        return []
    try:
        return [jwk.import_key(given)]
    except (JoseError, ValueError, TypeError):
        return []


async def _ask(
    method: str, address: str, form: Mapping[str, str] | None = None, auth: httpx.Auth | None = None
) -> bytes:
    """The body of the provider's answer."""
    answer_bytes = bytearray()
    try:
        async with (
            asyncio.timeout(PROVIDER_TIMEOUT_SECONDS),
            httpx.AsyncClient(timeout=PROVIDER_TIMEOUT_SECONDS) as client,
            client.stream(method, address, data=form, auth=auth, headers=_HEADERS) as answer,
        ):
            async for part in answer.aiter_bytes():
                answer_bytes += part
                if len(answer_bytes) > MAX_PROVIDER_ANSWER_BYTES:
                    raise _refused("its answer is too large")
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
        log.warning("single sign-on: %s cannot be asked: %r", address, error)
        raise ApiProblem(503, "the provider of single sign-on cannot be reached; try again later") from None
    if form is not None and answer.status_code in (400, 401):
        log.warning("single sign-on: %s refused a code: %s", address, bytes(answer_bytes[:300]))
        raise _unproven("it does not accept the code of this log-in")
    if answer.status_code != 200:
        raise _refused(f"{address} answers {answer.status_code}")
    return bytes(answer_bytes)


def _decoded(raw: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.MsgspecError as error:
        raise _refused(f"its answer cannot be read: {error}") from None


def _form_encoded(text: str) -> str:
    """As RFC 6749 asks for it in basic authentication."""
    return quote_plus(text)


def _unproven(why: str) -> ApiProblem:
    log.warning("single sign-on refused: %s", why)
    return ApiProblem(401, f"the provider of single sign-on did not prove who you are: {why}; log in again")


def _refused(why: str) -> ApiProblem:
    log.warning("single sign-on: the provider is not as configured: %s", why)
    return ApiProblem(
        503, "the provider of single sign-on does not answer as it should; see the server's log"
    )
