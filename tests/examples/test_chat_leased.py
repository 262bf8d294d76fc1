"""examples/chat with leased pods: pods are added, stopped and killed while messages are sent; every chat stays in order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playing import Example

from qbull.store.store import Store

MESSAGE = (
    """qbull enqueue WHATSAPP send '{"phone": "+5493515550100", "text": "hola"}' -A whatsapp:app --wait 60"""
)

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(name="example")
def prepare(store: Store, server_url: str, tmp_path: Path) -> Iterator[Example]:
    example = Example("chat", tmp_path, server_url, WHATSAPP_SECONDS="0.01", MIN_IDLE_TIME_MS="1000")
    yield example
    example.close()


def test_pods_come_and_go_while_messages_are_sent(example: Example) -> None:
    printed = example.run("PARTITIONS=4 PARTITIONS_PER_POD=2 python scale.py")

    rows = re.findall(r"^\| ([a-z, ]+) \| (\d) \| 2 \| (\d) \|$", printed, re.MULTILINE)
    assert rows == [
        ("half of the pods", "1", "2"),
        ("all pods", "2", "0"),
        ("one was killed, another started", "2", "0"),
        ("half of them were stopped", "1", "2"),
        ("all pods again", "2", "0"),
    ]
    assert re.search(r"\d+ messages were sent by [234] pods; 0 chats are out of order\.$", printed.strip())


@pytest.mark.skipif("QBULL_LONG" not in os.environ, reason="minutes: make proofs")
@pytest.mark.parametrize(
    "line",
    [
        "PARTITIONS=16 PARTITIONS_PER_POD=2 python scale.py",
        "PARTITIONS=64 PARTITIONS_PER_POD=4 python scale.py",
        "PARTITIONS=8 PARTITIONS_PER_POD=1 python scale.py",
    ],
)
def test_other_numbers_of_pods_and_partitions(example: Example, line: str) -> None:
    assert example.run(line).strip().endswith("; 0 chats are out of order.")


def test_one_pod_of_the_page_sends_a_message(example: Example) -> None:
    example.environment |= {"PARTITIONS": "2"}
    example.start("python run_workers.py")

    example.run(MESSAGE)
    assert re.search(r"^\s*0 ", example.run("qbull partitions WHATSAPP"), re.MULTILINE)

    assert (example.directory / "chats" / "+5493515550100.txt").read_text() == "hola\n"
