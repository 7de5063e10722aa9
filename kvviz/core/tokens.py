"""How a token is written on screen: one function for chips, ticks, hovers and tables.

The notation can be read back, so two different tokens never look the same to a program, and hardly ever
to a reader:

- a blank is a visible sign: space `·`, newline `⏎`, tab `⇥`, …
- a character that looks like such a sign, or that would be invisible, stands in ⟨angle brackets⟩, by itself
  or by its code point: a literal middle dot is `⟨·⟩`, a zero-width space `⟨U+200B⟩`
- bytes that are no whole characters are written in hex, `F0 9F`; a single byte says so, `97₁₆`, since a
  bare 97 is the number
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Iterable, Sequence

SPACE, NEWLINE, TAB, EMPTY = "·", "⏎", "⇥", "∅"
_VISIBLE = {" ": SPACE, "\n": NEWLINE, "\t": TAB, "\r": "␍", "\u00a0": "⍽", "\u3000": "□"}
_OPEN, _CLOSE, _HEX, _RING = "⟨", "⟩", "₁₆", "◌"
_TAKEN = {*_VISIBLE.values(), _OPEN, _CLOSE, _RING, EMPTY}  # signs of this notation, when they are meant literally
# Letters and marks that print nothing, or that stand for "no such character".
_UNSEEN = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFC, 0xFFFD}


def label(piece: bytes) -> str:
    """The token's own text with blanks made visible; bytes in hex where it is part of a character.

    >>> label(b" who"), label(b"\\n\\n"), label(bytes([0xF0, 0x9F])), label(bytes([0x97])), label(b"97")
    ('·who', '⏎⏎', 'F0 9F', '97₁₆', '97')
    """
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:
        return piece.hex(" ").upper() + (_HEX if len(piece) == 1 else "")
    if not text:
        return EMPTY
    written = "".join(_sign(c) for c in text)
    if unicodedata.category(text[0]).startswith("M") and not written.startswith(_OPEN):
        written = _RING + written  # a combining mark needs something to sit on
    if written.endswith(_HEX) and len(written) == 4:  # somebody did type it
        written = f"{written[:2]}{_OPEN}{_HEX[0]}{_CLOSE}{_HEX[1]}"
    return written


def _sign(c: str) -> str:
    if c in _VISIBLE:
        return _VISIBLE[c]
    if c in _TAKEN:
        return f"{_OPEN}{c}{_CLOSE}"
    variation = 0xFE00 <= ord(c) <= 0xFE0F or 0xE0100 <= ord(c) <= 0xE01EF
    if not c.isprintable() or variation or ord(c) in _UNSEEN:
        return f"{_OPEN}U+{ord(c):04X}{_CLOSE}"
    return c


def labels(pieces: Iterable[bytes]) -> list[str]:
    return [label(p) for p in pieces]


def character_groups(pieces: Sequence[bytes]) -> list[tuple[int, int, str]]:
    """Tokens that only together make whole characters: (start, end, label), covering all tokens in order.

    A token that stands on its own is a group of one. Bytes that can never become a character (a model may
    write such) do not swallow their neighbours.

    >>> character_groups([b"caf", bytes([0xC3]), bytes([0xA9])])
    [(0, 1, 'caf'), (1, 3, 'é')]
    """
    groups: list[tuple[int, int, str]] = []
    start, decoder = 0, codecs.getincrementaldecoder("utf-8")()
    for i, piece in enumerate(pieces):
        try:
            decoder.decode(piece)
        except UnicodeDecodeError:
            groups += [(j, j + 1, label(pieces[j])) for j in range(start, i)]  # what waited will not be completed
            start, decoder = i, codecs.getincrementaldecoder("utf-8")()
            try:
                decoder.decode(piece)
            except UnicodeDecodeError:
                groups.append((i, i + 1, label(piece)))
                start, decoder = i + 1, codecs.getincrementaldecoder("utf-8")()
                continue
        if not decoder.getstate()[0]:  # nothing half-read: the characters so far are whole
            groups.append((start, i + 1, label(b"".join(pieces[start : i + 1]))))
            start = i + 1
    return groups + [(j, j + 1, label(pieces[j])) for j in range(start, len(pieces))]
