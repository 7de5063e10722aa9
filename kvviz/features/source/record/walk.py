"""A walk through installed source: the functions a model pass goes through, and the line each station stands on."""

from __future__ import annotations

from dataclasses import dataclass

# Every station there is: a link may name any, also one that this run's model or version lacks.
STATIONS = ("cut", "loop", "feed", "model", "embed", "position", "mask", "layers", "block", "qkv", "rotate", "update",
            "cache", "append_k", "append_v", "hand_back", "attend", "residual", "back", "logits", "choose",
            "lengthen")  # fmt: skip


@dataclass(frozen=True)
class Listing:
    """One function as it stands in its file."""

    name: str  # "GPT2Attention.forward"
    file: str  # from the package's folder on, "transformers/models/gpt2/modeling_gpt2.py"
    first: int  # line number in the file of lines[0]
    lines: tuple[str, ...]  # without the indentation that all of them share
    prose: tuple[int, int] | None  # first and last line number of its docstring


@dataclass(frozen=True)
class Station:
    """One statement that the pass comes to."""

    name: str  # finds its sentences: section at_NAME of the page's lesson
    listing: int  # index into the walk's listings
    lit: tuple[int, int]  # its first and last line number in the file
    depth: int  # calls below the generate loop


@dataclass(frozen=True)
class Walk:
    """The stations of a pass, in the order in which it comes to them; a layer's are those of any one layer."""

    architecture: str  # "GPT2LMHeadModel"
    version: str  # of the installed transformers
    listings: tuple[Listing, ...]
    stations: tuple[Station, ...]
    missing: tuple[str, ...]  # "function: station" that this version has no such line for
    argument: str  # how the model's forward calls its cache: "cache", or "past_key_values" as it was called before
    renamed: str | None  # the version from which the old name is refused, as the source itself announces it

    @property
    def known(self) -> bool:
        """kvviz knows the way through this architecture; else only what all models share is here."""
        return any(s.depth == 1 for s in self.stations)
