"""Ask the OSV database for known faults of what the lock files pin, Python and JavaScript: `make audit`.

It ends with 1 if there is one. If the database cannot be asked, it prints one line and ends with 2: nothing was checked, and
a pipeline must not take that for a clean result.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request

from locked import Package, page_packages, python_packages

SERVICE = "https://api.osv.dev"
AT_ONCE = 500
NOT_CHECKED = 2


def known_faults(packages: list[Package], service: str) -> list[tuple[Package, str]]:
    found = []
    for start in range(0, len(packages), AT_ONCE):
        some = packages[start : start + AT_ONCE]
        queries = [
            {"package": {"name": p.name, "ecosystem": p.ecosystem}, "version": p.version} for p in some
        ]
        request = urllib.request.Request(
            f"{service}/v1/querybatch",
            json.dumps({"queries": queries}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            results = json.load(answer)["results"]
        for package, result in zip(some, results, strict=True):
            found += [(package, fault["id"]) for fault in result.get("vulns", [])]
    return found


def main() -> int:
    service = os.environ.get("OSV_URL", SERVICE)
    packages = python_packages() + page_packages()
    try:
        faults = known_faults(packages, service)
    except (OSError, ValueError, KeyError) as error:
        print(f"audit: {service} cannot be asked: {error}; nothing was checked, try again with a network")
        return NOT_CHECKED
    for package, fault in faults:
        print(f"{package.name} {package.version} ({package.ecosystem}): {fault}; see https://osv.dev/{fault}")
    print(f"audit: {len(packages)} packages, {len(faults)} known faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
