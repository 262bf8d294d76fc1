"""StreamDecoder: makes a value of an entry in the stream of a job."""

from __future__ import annotations

from typing import Any

import msgspec

from qbull.codecs.chain import CodecChain
from qbull.core.codec import decode_exactly, decode_untyped
from qbull.core.streams import StreamEntry
from qbull.core.values import ValueHooks
from qbull.worker.durable_services import stream_context


class StreamDecoder(msgspec.Struct, frozen=True):
    """For one job. `kind` is the type of the values, Any for plain data."""

    codecs: CodecChain
    hooks: ValueHooks
    queue: str
    id: str
    kind: Any

    def __call__(self, task: str, entry: StreamEntry) -> Any:
        """The value. Raises PayloadError if this app cannot read it, or must not."""
        context = stream_context(self.queue, self.id, task, entry.key)
        content = self.codecs.open(context, entry.content)
        return decode_untyped(content) if self.kind is Any else decode_exactly(content, self.kind, self.hooks)
