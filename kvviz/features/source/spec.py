"""What the page "Source" is."""

from dataclasses import dataclass

from kvviz.features.source.record.walk import STATIONS
from kvviz.ui.spec import OneOf, PageSpec, Try, setting


@dataclass(frozen=True)
class Own:
    """The line that is lit."""

    station: str = setting(OneOf(STATIONS), STATIONS[0])


SPEC = PageSpec(
    "source",
    "through",
    8,
    own=Own,
    tries=(Try("cut"), Try("append"), Try("prefill")),
    follows=("walk", "below", "share"),
    asks=("rope", "mask"),
)
