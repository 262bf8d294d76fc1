"""`qbull-alive`: whether a worker of this machine is alive, for health checks that run often.

`qbull worker` writes a file every few seconds (qbull/worker/process/service_status.py). This module reads it.
It imports nothing of qbull, so that a probe costs little more than the start of Python.
"""

import os
import sys
import time

FRESH_SECONDS = 30.0
"""A worker that has not written its file for so long is not alive."""


def status_directory() -> str:
    """The directory of the files: one for each user, in the directory for temporary files."""
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"qbull-{os.getuid()}")  # noqa: S108


def states() -> list[str]:
    """What the workers of this machine and user have written lately: starting, ready, waiting or stopping."""
    found = []
    try:
        entries = list(os.scandir(status_directory()))
    except OSError:
        return []
    for entry in entries:
        try:
            is_ours = entry.name.startswith("worker-") and entry.stat().st_uid == os.getuid()
            if is_ours and time.time() - entry.stat().st_mtime < FRESH_SECONDS:
                with open(entry.path, encoding="ascii") as file:
                    found.append(file.read().strip())
        except (OSError, ValueError):
            continue
    return found


def main() -> None:
    """Exit with 0 if a worker is alive; with --ready only if one runs jobs."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["--ready"]):
        print(__doc__.splitlines()[0], "\nUsage: qbull-alive [--ready]", file=sys.stderr)
        raise SystemExit(0 if arguments in (["--help"], ["-h"]) else 2)
    found = states()
    if found and (not arguments or "ready" in found):
        print(", ".join(sorted(found)))
        return
    reason = f"it is {found[0]}" if found else "none has reported for 30 seconds"
    print(
        f"no worker of this machine is {'ready' if arguments else 'alive'}: {reason}; see its log",
        file=sys.stderr,
    )
    raise SystemExit(1)


if __name__ == "__main__":
    main()
