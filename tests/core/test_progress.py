"""Progress: a report of a task keeps its meaning on the server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qbull.core.progress import MAX_NOTE_CHARS, Progress, make_progress, read_progress

totals = st.integers(1, 10**12) | st.floats(0.001, 1e12)


@given(totals, st.floats(0, 1), st.none() | st.text(max_size=300))
def test_a_report_is_read_as_it_was_written(total: float, part: float, note: str | None) -> None:
    said = make_progress(min(total, total * part), total, note)

    read = read_progress(said.packed().encode())

    assert read is not None
    assert (read.done, read.total) == (said.done, said.total)
    assert abs(read.percent - said.percent) <= 1e-3
    assert (read.note or "") == (said.note or "")
    assert len(read.note or "") <= MAX_NOTE_CHARS


@given(st.floats(0, 100), st.none() | st.text(min_size=1, max_size=20))
def test_a_percentage_with_a_note_is_read_as_it_was_written(percent: float, note: str | None) -> None:
    said = make_progress(percent, None, note)

    read = read_progress(said.packed().encode())

    assert read is not None
    assert (read.done, read.total, read.note) == (None, None, said.note)
    assert abs(read.percent - percent) <= 1e-3


def test_the_number_that_an_older_build_wrote_is_read() -> None:
    assert read_progress(b"33.5") == Progress(33.5)
    assert read_progress(b"40") == Progress(40)
    assert read_progress(b"") is None


def test_progress_is_shown_for_people() -> None:
    assert Progress(50).shown() == "50 %"
    assert make_progress(50_000, 200_000, "reading rows").shown() == "25 % (50,000 of 200,000), reading rows"
