"""The campaign's end of proxy.py: starts the process and tells it what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from topology import _die_with_parent, free_port


class Proxies:
    def __init__(self, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("proxy.py")), str(seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=_die_with_parent,
        )  # fmt: skip

    def before(self, target: int) -> int:
        """A port on which a proxy passes everything on to this one."""
        port = free_port()
        assert self._tell(listen=port, target=target) == "listening\n"
        return port

    def strike(self, **order: Any) -> list[int]:
        """The ports of the clients whose connections were struck."""
        ports: list[int] = json.loads(self._tell(**order))
        return ports

    def _tell(self, **order: Any) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
