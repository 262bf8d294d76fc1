"""Write a bill of materials (CycloneDX 1.5) of what the lock files pin: `make sbom`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from locked import ROOT, Package, page_packages, python_packages


def bill() -> dict[str, Any]:
    """The same lock files give the same bytes: no time of day, no random number."""
    version = re.search(
        r'^__version__ = "([^"]+)"', (ROOT / "src/qbull/__init__.py").read_text(), re.MULTILINE
    )
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "library", "name": "qbull", "version": version.group(1) if version else "0"}
        },
        "components": [
            *(_component(package, "required") for package in python_packages()),
            *(_component(package, "optional") for package in page_packages()),
        ],
    }


def _component(package: Package, scope: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "scope": scope,
        "licenses": [{"expression": package.licence}],
        "hashes": [{"alg": algorithm, "content": digest} for algorithm, digest in package.hashes],
    }


def main(place: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    found = bill()
    place.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{place}: {len(found['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "qbull.cdx.json")
