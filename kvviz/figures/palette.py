"""Colours: one hue a tensor, the same in every picture, chosen to be told apart by colour-blind eyes.

The fills are Okabe and Ito's (Color Universal Design, 2008): Q blue, K orange, V bluish green, wasted vermilion.
Each role has a value of its own in each theme, so that a drawn figure can be recoloured for the other theme
without being built again. Contrast is that of WCAG 2.2: text needs 4.5:1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Palette:
    """Roles and their colours, `#rrggbb` in lower case."""

    background: str
    card: str
    text: str  # also rows that had to be computed
    muted: str  # secondary text
    line: str  # grid, thin rules
    q: str
    k: str
    v: str
    wasted: str
    q_text: str
    k_text: str
    v_text: str
    wasted_text: str
    q_muted: str  # reused: same hue, muted
    k_muted: str
    v_muted: str
    wasted_ground: str  # under the hatching
    masked: str
    masked_hatch: str
    thrown: str  # computed, and not kept
    scale_0: str  # attention weights, at SCALE's stops
    scale_1: str
    scale_2: str
    scale_3: str
    scale_4: str
    on_low: str  # text inside a cell below INK_CHANGES
    on_high: str  # and from there on
    on_full: str  # text on K, V or Q in full colour


LIGHT = Palette(
    background="#ffffff",
    card="#f7f8fa",
    text="#1b1f24",
    muted="#5c6270",
    line="#e3e6ea",
    q="#0072b2",
    k="#e69f00",
    v="#009e73",
    wasted="#d55e00",
    q_text="#0071b1",
    k_text="#8a5f00",
    v_text="#007a59",
    wasted_text="#b84e00",
    q_muted="#9cc7e0",
    k_muted="#f5d48f",
    v_muted="#a3dcc9",
    wasted_ground="#fbe6d8",
    masked="#eceef1",
    masked_hatch="#9aa1ab",
    thrown="#868d98",
    scale_0="#f4f8fb",
    scale_1="#cde2f0",
    scale_2="#8bbfe0",
    scale_3="#3c7ba4",
    scale_4="#00395c",
    on_low="#000000",
    on_high="#fffffe",
    on_full="#000002",
)

DARK = Palette(
    background="#0f1216",
    card="#171b21",
    text="#e8eaee",
    muted="#9aa3ae",
    line="#2a3038",
    q="#56b4e9",
    k="#f0b429",
    v="#2bc79b",
    wasted="#ff7a45",
    q_text="#6cc1f5",
    k_text="#f0b42a",
    v_text="#2bc79c",
    wasted_text="#ff8a5c",
    q_muted="#28506a",
    k_muted="#6b5320",
    v_muted="#1c5a4a",
    wasted_ground="#3a2119",
    masked="#1d2229",
    masked_hatch="#6d7683",
    thrown="#67707d",
    scale_0="#151b21",
    scale_1="#1a3448",
    scale_2="#265678",
    scale_3="#3c7ba3",
    scale_4="#a9dbfb",
    on_low="#fffffd",
    on_high="#000001",
    on_full="#000003",
)

# Most weights are small: half of the scale serves the first fifth of the range.
SCALE = (0.0, 0.05, 0.2, 0.5, 1.0)
# At this weight both themes pass luminance 0.18, where black and white text are equally legible.
INK_CHANGES = 0.5


def palette(dark: bool) -> Palette:
    return DARK if dark else LIGHT


def attention_scale(dark: bool) -> list[tuple[float, str]]:
    """A Plotly colour scale for weights from 0 to 1."""
    p = palette(dark)
    return list(zip(SCALE, (p.scale_0, p.scale_1, p.scale_2, p.scale_3, p.scale_4), strict=True))


def themes() -> dict[str, dict[str, str]]:
    """Role to colour, for both themes: what the browser needs to recolour a figure."""
    return {"light": asdict(LIGHT), "dark": asdict(DARK)}


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, 0 to 1 (WCAG 2.2, "relative luminance")."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2, "contrast ratio")."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)
