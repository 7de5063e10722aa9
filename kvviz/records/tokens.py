"""How a token is written on screen: one function for chips, ticks, hovers and tables."""

from __future__ import annotations

SPACE, NEWLINE, TAB = "·", "⏎", "⇥"
_VISIBLE = {" ": SPACE, "\n": NEWLINE, "\t": TAB, "\r": "␍", "\u00a0": "⍽", "\u3000": "□"}


def label(piece: bytes) -> str:
    """The token's own text with blanks made visible; bytes in hex where it is part of a character.

    >>> label(b" who"), label(b"\\n\\n"), label(bytes([0xF0, 0x9F]))
    ('·who', '⏎⏎', 'F0 9F')
    """
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:
        return piece.hex(" ").upper()
    if not text:
        return "∅"
    return "".join(_VISIBLE.get(c, c if c.isprintable() else f"<{ord(c):02X}>") for c in text)


def labels(pieces: list[bytes]) -> list[str]:
    return [label(p) for p in pieces]
