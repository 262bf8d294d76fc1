"""Real producers in Node: BullMQ and Bull, which write to the old server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

from producers import Old

from needed_tools import needs_tool

NODE_FOLDER = Path(__file__).parents[1] / "node"
needs_node = needs_tool(
    shutil.which("node") and (NODE_FOLDER / "node_modules").is_dir(),
    "Node is not installed, or `make test` has not installed tests/node",
)


class BullQueue:
    """A queue of BullMQ or Bull on the old server."""

    def __init__(self, old: Old, library: Literal["bullmq", "bull"], name: str = "email") -> None:
        options = old.redis.connection_pool.connection_kwargs
        self._spec = {
            "library": library,
            "connection": {name: options[name] for name in ("path", "password", "db")},
            "queue": name,
            "prefix": "bull",
        }

    def run(self, *steps: Any) -> list[Any]:
        """Run steps of tests/node/produce.cjs; returns the answer of each."""
        done = subprocess.run(
            ["node", "produce.cjs"],
            input=json.dumps({**self._spec, "steps": steps}),
            cwd=NODE_FOLDER,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers: list[Any] = json.loads(done.stdout)
        return answers

    def counts(self) -> dict[str, int]:
        """The number of jobs in each state that has some."""
        [counts] = self.run(["counts"])
        return {state: count for state, count in counts.items() if count}
