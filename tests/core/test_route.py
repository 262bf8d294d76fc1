"""Which partition a key goes to: test vectors that a producer in any other language can repeat.

The algorithm, in full:

1. Take the key as UTF-8 bytes, exactly as it is: no trimming, no case folding, no Unicode normalisation.
2. Take SHA-256 over them, and of it the first eight bytes. That is the digest; it names the lane.
3. Read the digest as an unsigned big-endian number. Modulo the number of partitions it is the partition.

A job that has no key but an id that its producer chose is placed by the same rule over the id.
"""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbull.core.route import PARTITION_LANE, digest, partition_of_digest

VECTORS = [
    # key, digest, and its partition of 1, 2, 4, 7, 16, 64, 1000
    ("a", "ca978112ca1bbdca", (0, 0, 2, 4, 10, 10, 250)),
    ("A", "559aead08264d579", (0, 1, 1, 3, 9, 57, 65)),
    (" ", "36a9e7f1c95b82ff", (0, 1, 3, 1, 15, 63, 727)),
    ("0", "5feceb66ffc86f38", (0, 0, 0, 3, 8, 56, 40)),
    ("\x00", "6e340b9cffb37a98", (0, 0, 0, 4, 8, 24, 192)),
    ("\n", "01ba4719c80b6fe9", (0, 1, 1, 1, 9, 41, 193)),
    ("user-1", "c6c289e49e9c05b2", (0, 0, 2, 5, 2, 50, 594)),
    ("user-2", "d92b69cfb82cecab", (0, 1, 3, 4, 11, 43, 987)),
    ("+5435155", "ba3f0d266df8e5d6", (0, 0, 2, 4, 6, 22, 70)),
    ("+5491155550000", "5bc17dd44d0addb4", (0, 0, 0, 2, 4, 52, 284)),
    ("customer 42", "44dda82580e671c1", (0, 1, 1, 5, 1, 1, 993)),
    ("tenant:acme/orders", "1f9c02f0df742b8d", (0, 1, 1, 3, 13, 13, 437)),
    ("ñandú", "43dbd6bf7148e6e6", (0, 0, 2, 6, 6, 38, 86)),
    ("Zo\u00eb", "c6a12698582fc110", (0, 0, 0, 3, 0, 16, 48)),
    ("Zoe\u0308", "c106d15587c5ec6c", (0, 0, 0, 2, 12, 44, 204)),
    ("日本語", "77710aedc74ecfa3", (0, 1, 3, 5, 3, 35, 371)),
    ("🚚", "417710f369590e56", (0, 0, 2, 2, 6, 22, 302)),
    ("x" * 1000, "44f8354494a5ba03", (0, 1, 3, 2, 3, 3, 619)),
]
PARTITIONS = (1, 2, 4, 7, 16, 64, 1000)


@pytest.mark.parametrize(("key", "hexadecimal", "partitions"), VECTORS)
def test_the_published_vectors_hold(key: str, hexadecimal: str, partitions: tuple[int, ...]) -> None:
    assert digest(key).hex() == hexadecimal
    assert tuple(partition_of_digest(digest(key), n) for n in PARTITIONS) == partitions


@pytest.mark.parametrize(("key", "hexadecimal", "partitions"), VECTORS)
def test_the_published_vectors_follow_from_the_algorithm(
    key: str, hexadecimal: str, partitions: tuple[int, ...]
) -> None:
    first_eight = hashlib.sha256(key.encode("utf-8")).hexdigest()[:16]

    assert first_eight == hexadecimal
    assert tuple(int(first_eight, 16) % n for n in PARTITIONS) == partitions


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.integers(1, 5000))
def test_every_key_has_one_partition_within_range(key: str, partitions: int) -> None:
    first, second = (partition_of_digest(digest(key), partitions) for _ in range(2))

    assert first == second
    assert 0 <= first < partitions


def test_keys_spread_evenly() -> None:
    counts = [0] * 16

    for n in range(16_000):
        counts[partition_of_digest(digest(f"customer-{n}"), 16)] += 1

    assert min(counts) > 800
    assert max(counts) < 1200


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_no_key_takes_the_lane_that_a_whole_partition_shares(key: str) -> None:
    assert digest(key) != PARTITION_LANE
    assert len(digest(key)) == len(PARTITION_LANE) == 8
