"""examples/whatsapp_leased: pods are added, stopped and killed while messages are sent; every chat stays in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playing import Example

from qbull.store.store import Store

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(name="example")
def prepare(store: Store, server_url: str, tmp_path: Path) -> Iterator[Example]:
    example = Example(
        "whatsapp_leased", tmp_path, server_url, WHATSAPP_SECONDS="0.01", MIN_IDLE_TIME_MS="1000"
    )
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


def test_one_pod_of_the_page_sends_a_message(example: Example) -> None:
    example.environment |= {"PARTITIONS": "2"}
    example.start("python run_workers.py")

    message = '{"phone": "+5493515550100", "text": "hola"}'
    example.run(f"qbull enqueue WHATSAPP send '{message}' -A whatsapp:app --wait 60")

    assert (example.directory / "chats" / "+5493515550100.txt").read_text() == "hola\n"
