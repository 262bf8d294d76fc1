"""Write deploy/kubernetes anew: `make manifests`."""

from __future__ import annotations

import sys

from manifests.render import ROOT, CannotRender, plain_files

try:
    for name, text in plain_files().items():
        (ROOT / "deploy" / "kubernetes" / name).write_text(text)
except CannotRender as why:
    sys.exit(str(why))
