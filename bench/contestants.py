"""Who takes part."""

from __future__ import annotations

from bench.contestant import Contestant
from bench.floor import Floor
from bench.ours import Ours

CONTESTANTS: dict[str, Contestant] = {"floor": Floor(), "qbull": Ours()}
