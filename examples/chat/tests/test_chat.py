"""Chats: each in the order in which it was written, and nothing but messages gets in.

They run on a real Valkey that qbull starts for the tests.
"""

from pathlib import Path

import pytest
import whatsapp
from whatsapp import send

import qbull
from qbull import testing

ANA, BEN = "+5493515550100", "+5493515550101"


@pytest.fixture(autouse=True)
def chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(whatsapp, "CHATS", tmp_path)
    return tmp_path


async def test_every_chat_is_in_order(qbull_server: testing.embedded, chats: Path) -> None:
    await send.enqueue_many(
        [{"phone": phone, "text": f"message {number}"} for number in range(5) for phone in (ANA, BEN)]
    )

    await qbull_server.run_due()

    for phone in (ANA, BEN):
        assert (chats / f"{phone}.txt").read_text().splitlines() == [
            f"message {number}" for number in range(5)
        ]


async def test_a_phone_always_has_the_same_partition(qbull_server: testing.embedded) -> None:
    jobs = [await send.enqueue(phone=ANA, text=text) for text in ("hola", "chau")]

    partitions = {info.partition for job in jobs if (info := await job.info())}

    assert partitions == {qbull.partition_of(ANA, whatsapp.config.PARTITIONS)}


@pytest.mark.parametrize(
    ("phone", "text"),
    [("../../etc/passwd", "hola"), ("5493515550100", "hola"), (ANA, ""), (ANA, "x" * 4097)],
)
async def test_what_is_no_message_is_refused(qbull_server: testing.embedded, phone: str, text: str) -> None:
    with pytest.raises(qbull.QbullError):
        await send.enqueue(phone=phone, text=text)
