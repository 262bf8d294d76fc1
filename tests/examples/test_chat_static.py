"""examples/chat with static pods: each pod sends what is in its partitions, in order, also when one is killed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playing import Example

from qbull.store.store import Store

MESSAGE = """TOTAL_PARTITIONS=4 qbull enqueue WHATSAPP send '{"phone": "+5493515550100", "text": "hola"}' -A whatsapp:app --wait 60"""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(name="example")
def prepare(store: Store, server_url: str, tmp_path: Path) -> Iterator[Example]:
    example = Example("chat", tmp_path, server_url)
    yield example
    example.close()


def test_each_pod_sends_the_messages_of_its_partitions(example: Example) -> None:
    printed = example.run("python scenario.py moderate")

    rows = re.findall(r"^\| (\d+) \| ([\d, ]+) \| (\d+) \|$", printed, re.MULTILINE)
    assert [(pod, partitions) for pod, partitions, _ in rows] == [
        (str(pod), f"{pod}, {pod + 8}") for pod in range(8)
    ]
    assert sum(int(messages) for _, _, messages in rows) == 384
    assert printed.endswith("384 messages to 128 phones; 0 chats are out of order.\n")


@pytest.mark.skipif("QBULL_LONG" not in os.environ, reason="half a minute and more: make proofs")
@pytest.mark.parametrize("line", ["python scenario.py high", "python scenario.py granular"])
def test_other_numbers_of_pods_and_partitions(example: Example, line: str) -> None:
    assert example.run(line).endswith("; 0 chats are out of order.\n")


def test_a_killed_pod_sends_its_messages_when_it_is_back(example: Example) -> None:
    printed = example.run("python scenario.py recovery")

    # On a slow machine it is released before pod 0 is done; nobody else has sent it either way.
    assert re.search(r"The one of pod 1 is (active|waiting)\.", printed)
    assert printed.endswith("12 messages to 4 phones; 0 chats are out of order.\n")


def test_a_pod_by_hand_is_named_as_in_a_stateful_set(example: Example) -> None:
    example.start("TOTAL_PARTITIONS=4 INSTANCE_ID=pod-0 INSTANCE_COUNT=2 qbull worker whatsapp:app")
    example.start("TOTAL_PARTITIONS=4 INSTANCE_ID=pod-1 INSTANCE_COUNT=2 qbull worker whatsapp:app")

    said = example.run(MESSAGE)
    chat = example.directory / "chats" / "+5493515550100.txt"

    assert re.search(r"pod-[01]", said)
    assert chat.read_text() == "hola\n"
    assert len(re.findall(r"^\s*[0-3] ", example.run("qbull partitions WHATSAPP"), re.MULTILINE)) == 4
