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
        self.tell(listen=port, target=target)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"
        return port

    def tell(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
