"""Pin the images of deploy/ and of the templates by digest: `make pin` asks the registry which digest each tag has now, and writes it there.

It ends with 2 if the registry cannot be asked. Nothing is written then.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "deploy/Dockerfile",
    "deploy/compose.yaml",
    "deploy/swarm.yaml",
    "examples/orders/Dockerfile",
    "examples/orders/compose.yaml",
)
IMAGE = re.compile(r"(?P<name>[a-z0-9/]+):(?P<tag>[A-Za-z0-9._-]+)@(?P<digest>sha256:[0-9a-f]{64})")
REGISTRY = "https://registry-1.docker.io"
TOKENS = "https://auth.docker.io/token?service=registry.docker.io&scope=repository:{}:pull"
KINDS = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
NOT_ASKED = 2


def current_digest(name: str, tag: str, registry: str, tokens: str) -> str:
    """The digest of the index behind a tag, which stands for all platforms."""
    repository = name if "/" in name else f"library/{name}"
    with urllib.request.urlopen(tokens.format(repository), timeout=30) as answer:
        token = json.load(answer)["token"]
    request = urllib.request.Request(
        f"{registry}/v2/{repository}/manifests/{tag}",
        headers={"Authorization": f"Bearer {token}", "Accept": KINDS},
        method="HEAD",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        digest = str(answer.headers["Docker-Content-Digest"])
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"no digest of {name}:{tag}: {digest}")
    return digest


def main(root: Path) -> int:
    registry = os.environ.get("REGISTRY_URL", REGISTRY)
    tokens = os.environ.get("REGISTRY_TOKEN_URL", TOKENS)
    texts = {file: (root / file).read_text() for file in FILES}
    try:
        found = {
            image: current_digest(image["name"], image["tag"], registry, tokens)
            for text in texts.values()
            for image in IMAGE.finditer(text)
        }
    except (OSError, ValueError, KeyError) as error:
        print(f"pin: {registry} cannot be asked: {error}; nothing was changed, try again with a network")
        return NOT_ASKED
    for image, digest in found.items():
        print(f"{image['name']}:{image['tag']} {'has' if digest == image['digest'] else 'gets'} {digest}")
    for file, text in texts.items():
        for image, digest in found.items():
            text = text.replace(image[0], f"{image['name']}:{image['tag']}@{digest}")
        (root / file).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
