"""TLS: its settings in a URL, and explanations of its failures. Certificates are verified unless the URL
turns that off.

?ssl_ca_certs=FILE                        trust only certificates that this CA has signed
?ssl_certfile=FILE&ssl_keyfile=FILE       our own certificate, for a server that asks for one
?ssl_check_hostname=false                 accept a certificate for another name
?ssl_cert_reqs=none                       accept any certificate: a man in the middle can read everything
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field

from qbull.errors import ConfigError, ServerRefused

_BOOLEAN_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CERT_REQUIREMENTS = {"required": True, "cert_required": True, "none": False, "cert_none": False}
_TLS_PARAMETERS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs")


@dataclass(frozen=True)
class TlsSettings:
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    checks_host: bool = True
    verifies: bool = True
    _made: dict[tuple[int, ...], ssl.SSLContext] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def parse(query: dict[str, str], *, secure: bool) -> TlsSettings | None:
        given = {name: value for name, value in query.items() if name.startswith("ssl_")}
        for name in given:
            if name not in _TLS_PARAMETERS:
                raise ConfigError(f'unknown parameter "{name}"; there are {", ".join(_TLS_PARAMETERS)}')
            if not secure:
                raise ConfigError(f'"{name}" is for TLS, and this speaks plain text; use rediss://')
        if not secure:
            return None
        if "ssl_keyfile" in given and "ssl_certfile" not in given:
            raise ConfigError("ssl_keyfile needs ssl_certfile: the certificate that the key belongs to")
        verifies = _one_of(given, "ssl_cert_reqs", _CERT_REQUIREMENTS)
        return TlsSettings(
            given.get("ssl_ca_certs"),
            given.get("ssl_certfile"),
            given.get("ssl_keyfile"),
            checks_host=verifies and _one_of(given, "ssl_check_hostname", _BOOLEAN_WORDS),
            verifies=verifies,
        )

    def context(self, shown: str) -> ssl.SSLContext:
        """The context, made once because it is slow, and again if a file was renewed."""
        paths = [path for path in (self.ca, self.certificate, self.key) if path is not None]
        try:
            version = tuple(os.stat(path).st_mtime_ns for path in paths)
        except OSError as error:
            raise ServerRefused(
                f"{shown}: {error.filename} cannot be read: {error.strerror}; "
                "correct the file or its name in the URL"
            ) from None
        if version not in self._made:
            made = self._make(shown)
            self._made.clear()
            self._made[version] = made
        return self._made[version]

    def _make(self, shown: str) -> ssl.SSLContext:
        path = self.ca
        try:
            context = ssl.create_default_context(cafile=self.ca)
            path = self.certificate
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # an SSLError is one
            reason = getattr(error, "reason", None) or error.strerror or "it is no certificate in PEM form"
            raise ServerRefused(
                f"{shown}: {path} cannot be used: {reason}; "
                "it must be a PEM file, and a key must fit its certificate"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.checks_host
        context.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
        return context


def explain_tls_error(error: BaseException | None) -> str | None:
    """Explain a failure of TLS in one line, with its remedy.

    None if it is no failure of TLS, or may pass by itself.
    """
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None:
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        fault = error.verify_message
        return f"its certificate is not trusted: {fault.rstrip('.')}; {_remedy(fault)}"
    for words, meaning in _TLS_ERROR_MEANINGS.items():
        if any(word in (error.reason or "") for word in words):
            return meaning
    return None


def _remedy(fault: str) -> str:
    if "mismatch" in fault:
        return "use a name that it is made out to"
    if "expired" in fault or "not yet valid" in fault:
        return "renew it, or correct the clock"
    return "name the CA that signed it with ?ssl_ca_certs=FILE"


_CERTIFICATE_HINT = "give one with ?ssl_certfile=FILE&ssl_keyfile=FILE"
_TLS_ERROR_MEANINGS = {
    ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"): (
        "it does not speak TLS on this port; use redis://, or the port on which it does"
    ),
    ("CERTIFICATE_REQUIRED",): f"it asks for a certificate of ours; {_CERTIFICATE_HINT}",
    ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN", "CERTIFICATE_REVOKED"): (
        "it does not accept our certificate; check ssl_certfile, and which CA the server trusts"
    ),
    ("HANDSHAKE_FAILURE", "PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"): (
        "it refused the handshake: it wants TLS below 1.2, which is unsafe, or a certificate of ours; "
        f"{_CERTIFICATE_HINT}"
    ),
}


def connect_hint(error: BaseException, tls: TlsSettings | None) -> str:
    """A remedy for a connection that cannot be opened, as the end of an error message."""
    if isinstance(error, TimeoutError):
        return "; if this port speaks plain text, use redis://" if tls is not None else ""
    if not str(error).startswith(("Error while reading", "Connection closed", "Protocol error")):
        return "; start it, or correct the address"
    if tls is None:
        return "; if this port speaks TLS, use rediss://"
    return "" if tls.certificate else f"; if it asks for a certificate of ours, {_CERTIFICATE_HINT}"


def _one_of(given: dict[str, str], name: str, words: dict[str, bool]) -> bool:
    first = next(iter(words))
    value = given.get(name, first).lower()
    if value not in words:
        short = [word for word in words if not word.startswith("cert_")]
        raise ConfigError(f'{name}="{given[name]}": use one of {", ".join(short)}')
    return words[value]
