"""What a device was measured to do, on a clock that always says the same."""

from __future__ import annotations

import pytest
import torch

from kvviz.features.race.record import Spread
from kvviz.measure import rates


class Clock:
    ms = 4.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr(rates, "timed", lambda device: Clock())


def test_rates_count_both_ways_of_a_copy():
    found = rates.measure(torch.device("cpu"), torch.float32, rounds=3, copied=2_000_000)
    assert found.bandwidth == Spread(1e9, 1e9, 1e9, 3)  # 4 MB in 4 ms
    assert found.flop_rate.median == pytest.approx(2 * 1024**3 / 0.004)


def test_float16_is_given_less_to_do_on_a_cpu():
    found = rates.measure(torch.device("cpu"), torch.float16, rounds=1, copied=1_000)
    assert found.flop_rate.median == pytest.approx(2 * 256**3 / 0.004)


def test_each_round_takes_a_turn_of_its_own():
    class Turn:
        taken = 0

        def __enter__(self):
            self.taken += 1

        def __exit__(self, *_):
            return False

    turn = Turn()
    rates.measure(torch.device("cpu"), torch.float32, rounds=3, copied=1_000, turn=turn)
    assert turn.taken == 4  # one of them untimed
