"""Colours: legible text in both themes, hues that stay apart without colour vision, roles that can be exchanged."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kvviz.figures import palette
from kvviz.figures.palette import DARK, LIGHT, SCALE, contrast, luminance

THEMES = pytest.mark.parametrize("p", [LIGHT, DARK], ids=["light", "dark"])


def test_contrast_is_wcags():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    # Worked by hand: grey 0x77 is (0.4667 + 0.055) / 1.055 to the power 2.4 = 0.1845, so 1.05 / 0.2345.
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=0.001)
    assert luminance("#ff0000") == pytest.approx(0.2126)


def test_fills_are_okabe_and_itos():
    assert (LIGHT.q, LIGHT.k, LIGHT.v, LIGHT.wasted) == ("#0072b2", "#e69f00", "#009e73", "#d55e00")
    assert (LIGHT.k_text, LIGHT.v_text, LIGHT.wasted_text) == ("#8a5f00", "#007a59", "#b84e00")


@THEMES
@pytest.mark.parametrize("role", ["text", "muted", "q_text", "k_text", "v_text", "wasted_text"])
def test_text_is_legible(p, role):
    for ground in (p.background, p.card):
        assert contrast(getattr(p, role), ground) >= 4.5


@THEMES
def test_text_in_cells_is_legible_at_every_weight(p):
    stops = np.array(SCALE)
    colours = [getattr(p, f"scale_{i}") for i in range(5)]
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours])  # (5, 3)
    for z in np.linspace(0, 1, 401):
        cell = "#" + "".join(f"{round(float(np.interp(z, stops, rgb[:, i]))):02x}" for i in range(3))
        ink = p.on_low if z < palette.INK_CHANGES else p.on_high
        assert contrast(ink, cell) >= 4.5, (z, cell)


@THEMES
def test_weights_order_by_lightness_alone(p):
    """A black-and-white print keeps the order of the weights."""
    steps = np.diff([luminance(getattr(p, f"scale_{i}")) for i in range(5)])
    assert (steps < 0).all() if p is LIGHT else (steps > 0).all()


def test_each_role_has_its_own_colour_in_each_theme():
    """So that a browser can exchange every colour of a figure, whichever theme it was built for."""
    light, dark = palette.themes()["light"], palette.themes()["dark"]
    assert light.keys() == dark.keys()
    colours = [*light.values(), *dark.values()]
    assert all(re.fullmatch("#[0-9a-f]{6}", c) for c in colours)
    assert len(set(colours)) == len(colours)


@THEMES
def test_bars_stand_out(p):
    """3:1 for shapes with a meaning (WCAG 1.4.11); K, pale by nature, is always drawn with an outline of `text`."""
    for role in ("q", "v", "wasted", "thrown", "text"):
        assert contrast(getattr(p, role), p.background) >= 3, role
