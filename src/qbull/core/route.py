"""Which partition a key goes to, and which lane it takes there.

One hash serves both, and it is the same in every language and version: the first eight bytes of
SHA-256 over the key in UTF-8. As a big-endian number modulo the number of partitions it names the
partition; as bytes it names the lane. The test vectors are in tests/core/test_route.py.
"""

from __future__ import annotations

import hashlib

PARTITION_LANE = bytes(8)
"""The lane that all jobs of a partition share when the order is by partition."""


def unique_name_lane(name: str) -> bytes:
    """The lane of a unique name: of nine bytes, so that it is no key's, and one job of it runs at a time."""
    return bytes.fromhex(name)[:8] + b"1"


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()[:8]


def partition_of_digest(key_digest: bytes, partitions: int) -> int:
    return int.from_bytes(key_digest, "big") % partitions
