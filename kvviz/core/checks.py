"""What an experiment asserted on its live tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """One assertion. `name` finds its sentence on the page: section proof_NAME.

    `value` was measured, `limit` is what it must not exceed (or, where the sentence says so, must equal or exceed).
    """

    name: str
    verdict: Literal["holds", "rounding", "fails"]  # "rounding": half precision differs as it may
    value: float
    limit: float
