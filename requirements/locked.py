"""What the lock files pin, read for the bill of materials (sbom.py) and for the search for known faults (audit.py)."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Package:
    """`hashes` are (algorithm, hexadecimal) of the files that may be installed, `licence` is an SPDX expression."""

    ecosystem: str
    name: str
    version: str
    hashes: tuple[tuple[str, str], ...]
    licence: str

    @property
    def purl(self) -> str:
        kind = "pypi" if self.ecosystem == "PyPI" else "npm"
        return f"pkg:{kind}/{self.name.replace('@', '%40', 1)}@{self.version}"


def python_packages(file: Path = ROOT / "requirements" / "run.txt") -> list[Package]:
    """Those that a user gets, with all extras but the proprietary one.

    Raises:
        KeyError: The table of licences does not have a package.
    """
    found = []
    licences = tomllib.loads((ROOT / "requirements" / "licences.toml").read_text())
    for entry in re.split(r"\n(?=\S)", file.read_text()):
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", entry)
        if match:
            hashes = tuple(("SHA-256", digest) for digest in re.findall(r"sha256:([0-9a-f]{64})", entry))
            found.append(Package("PyPI", match.group(1), match.group(2), hashes, licences[match.group(1)]))
    return found


def page_packages(file: Path = ROOT / "ui" / "package-lock.json") -> list[Package]:
    """Those of the dashboard: what is built into it, and what builds it."""
    found = []
    for path, facts in json.loads(file.read_text())["packages"].items():
        if path and "version" in facts:
            name = path.rpartition("node_modules/")[2]
            found.append(
                Package(
                    "npm",
                    name,
                    facts["version"],
                    tuple(_integrity(facts.get("integrity", ""))),
                    facts["license"],
                )
            )
    return found


def _integrity(text: str) -> list[tuple[str, str]]:
    kind, _, digest = text.partition("-")
    return [("SHA-512", base64.b64decode(digest).hex())] if kind == "sha512" else []
