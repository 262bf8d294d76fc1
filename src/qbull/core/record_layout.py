"""The layout of a record and of the index, as numbers that the Lua scripts share with Python.

The loader (store/connection/scripts.py) defines each of them as a local name in the scripts that use it.
"""

from __future__ import annotations

from qbull.core.flow import HAS_DEPENDENCIES_FLAG, HAS_DEPENDENTS_FLAG, NEVER_DUE_MS
from qbull.core.layout import GENERATION_SPAN_PARTITIONS
from qbull.core.parking import PARKED_DUE_MS, UNPARKED_LEVEL
from qbull.core.record import (
    ENDING_LENGTH_BYTES,
    HOLDS_LANE_FLAG,
    KEEPS_LANE_FLAG,
    RANKED_FLAG,
    RECORD_HEADER,
    REPORT_ALL_FLAG,
    REPORT_END_FLAG,
    RETURNS_TO_LANE_FLAG,
    Ending,
    ExtendedBody,
)
from qbull.core.route import PARTITION_LANE, unique_name_lane

_BODY = ExtendedBody.__struct_fields__
_ENDING = Ending.__struct_fields__

LUA_CONSTANTS: dict[str, int | str] = {
    # Positions in a record, counted from 1 as Lua does.
    "PRIORITY_AT": RECORD_HEADER["priority"].start + 1,
    "FLAGS_AT": RECORD_HEADER["flags"].start + 1,
    "CRASHES_AT": RECORD_HEADER["crashes"].start + 1,
    "CREATED_AT": RECORD_HEADER["created"].start + 1,
    "CREATED_BYTES": RECORD_HEADER["created"].size,
    "LANE_LENGTH_AT": RECORD_HEADER["lane_length"].start + 1,
    "HEADER_BYTES": sum(field.size for field in RECORD_HEADER.values()),
    # A larger first byte belongs to no record: it is text that another program has written.
    "MAX_LAYOUT_VERSION": 31,
    "HOLDS_LANE_FLAG": HOLDS_LANE_FLAG,
    "RETURNS_TO_LANE_FLAG": RETURNS_TO_LANE_FLAG,
    "KEEPS_LANE_FLAG": KEEPS_LANE_FLAG,
    "RANKED_FLAG": RANKED_FLAG,
    "REPORT_END_FLAG": REPORT_END_FLAG,
    "REPORT_ALL_FLAG": REPORT_ALL_FLAG,
    "HAS_DEPENDENTS_FLAG": HAS_DEPENDENTS_FLAG,
    "HAS_DEPENDENCIES_FLAG": HAS_DEPENDENCIES_FLAG,
    "KEY_LANE_BYTES": len(PARTITION_LANE),
    "SINGLE_LANE_BYTES": len(unique_name_lane("00" * 8)),
    # Positions of values in a body, for example PAYLOAD_VALUE, and in an ending.
    **{f"{name.upper()}_VALUE": position for position, name in enumerate(_BODY, 1)},
    "RESULT_VALUE": _ENDING.index("result") + 1,
    "ENDING_LENGTH_BYTES": ENDING_LENGTH_BYTES,
    # A text, because Lua drops digits of numbers of this size.
    "NEVER_DUE": str(NEVER_DUE_MS),
    "PARKED_DUE": str(PARKED_DUE_MS),
    "UNPARKED_BAND": UNPARKED_LEVEL,
    "GENERATION_SPAN": GENERATION_SPAN_PARTITIONS,
}
