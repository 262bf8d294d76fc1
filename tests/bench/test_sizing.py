"""docs/operate/sizing.md: its tables are what the formulas give with the measured constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
from bench.sizing import (
    CONSTANTS,
    PAGE,
    TABLES,
    Constants,
    Load,
    constants_table,
    example,
    size_for,
    two_digits,
    with_table,
)

CONSTANT = Constants.read()


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_are_what_the_formulas_give(table: Callable[[Constants], list[str]]) -> None:
    assert "\n" + "\n".join(table(CONSTANT)) + "\n\n" in PAGE.read_text()


def test_a_reader_gets_the_same_from_the_constants_on_the_page() -> None:
    values = [value for value in asdict(CONSTANT).values() if isinstance(value, float | int)]

    assert values == [two_digits(value) for value in values], (
        f"{CONSTANTS.name} has digits that the page lacks"
    )


def test_the_example_in_words_is_what_the_formulas_give() -> None:
    assert f"\n{example(CONSTANT)}\n" in PAGE.read_text()


@pytest.mark.parametrize("rate", [1, 1_000, 25_000, 1_000_000])
def test_no_primary_and_no_worker_process_is_busy_for_more_than_half_of_the_time(rate: int) -> None:
    load = Load(rate)
    size = size_for(load, CONSTANT)

    assert size.server_cores / size.primaries <= 0.5
    assert rate * (CONSTANT.worker_us + 1_000) / 1e6 / size.processes <= 0.5
    assert size.concurrency * size.processes >= 2 * rate * load.seconds
    assert size.primaries == 1 or size.primaries >= 3


def test_more_of_anything_never_needs_less() -> None:
    load = Load(10_000)
    size = size_for(load, CONSTANT)

    for more in (
        replace(load, rate=20_000),
        replace(load, cpu_ms=2.0),
        replace(load, argument_bytes=1_000),
        replace(load, by_key=True),
        replace(load, outage_seconds=3_600),
    ):
        larger = size_for(more, CONSTANT)
        assert larger.primaries >= size.primaries
        assert larger.processes >= size.processes
        assert larger.memory_gb >= size.memory_gb


def test_new_figures_replace_a_table_and_nothing_else() -> None:
    page = PAGE.read_text()
    other = replace(CONSTANT, worker_us=CONSTANT.worker_us * 2)

    changed = with_table(page, constants_table(other))

    assert changed != page
    assert with_table(changed, constants_table(CONSTANT)) == page
