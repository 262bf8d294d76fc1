"""What counts as a leak, and what does not."""

from __future__ import annotations

import random

from trend import trend


def test_what_rises_steadily_leaks() -> None:
    rising = [(second, 100 + 0.01 * second) for second in range(0, 3600, 2)]

    found = trend(rising, share=0.03, least=2.0)

    assert found.leaks and 35 < found.growth < 37


def test_what_goes_up_and_down_does_not() -> None:
    dice = random.Random(1)
    noisy = [(second, 100 + dice.uniform(-5, 5)) for second in range(0, 3600, 2)]

    assert not trend(noisy, share=0.03, least=2.0).leaks


def test_a_few_peaks_do_not() -> None:
    peaks = [(second, 500.0 if second % 300 == 0 else 100.0) for second in range(0, 3600, 2)]

    assert trend(peaks, share=0.03, least=2.0).growth == 0


def test_a_slow_leak_is_seen_through_noise() -> None:
    dice = random.Random(2)
    leaking = [(second, 100 + 0.003 * second + dice.uniform(-3, 3)) for second in range(0, 3600, 2)]

    assert trend(leaking, share=0.03, least=2.0).leaks


def test_what_fits_into_the_allowance_does_not() -> None:
    assert not trend([(0, 10.0), (60, 11.0), (120, 11.5)], share=0.03, least=2.0).leaks
