"""How the next token is chosen from logits."""

from __future__ import annotations

import copy
import math

import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from kvviz.core.facts import Sampling
from kvviz.core.refusal import Refusal

COOLEST, HOTTEST = 0.01, 100.0  # outside, float32 logits overflow or all tokens are alike


def check(sampling: Sampling) -> None:
    """Raises Refusal "bad_sampling" with the name of the setting that is out of range."""
    ranges = {
        "temperature": sampling.temperature == 0 or COOLEST <= sampling.temperature <= HOTTEST,
        "top_k": sampling.top_k >= 0,
        "top_p": 0 < sampling.top_p <= 1,
        "seed": 0 <= sampling.seed < 2**63,
    }
    for name, right in ranges.items():
        if not right or not math.isfinite(getattr(sampling, name)):
            raise Refusal("bad_sampling", setting=name, value=str(getattr(sampling, name)))


class Sampler:
    """Greedy, or transformers' own processors followed by one draw from a seeded generator.

    Works on the CPU in float32, so that a seed means the same tokens on every device.
    """

    def __init__(self, sampling: Sampling) -> None:
        check(sampling)
        self.sampling = sampling
        self.generator = torch.Generator().manual_seed(sampling.seed)
        self.processors = LogitsProcessorList()
        if not sampling.greedy:
            self.processors.append(TemperatureLogitsWarper(float(sampling.temperature)))
            if sampling.top_k:
                self.processors.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p < 1:
                self.processors.append(TopPLogitsWarper(float(sampling.top_p)))

    def clone(self) -> Sampler:
        """A sampler that will make the same next draw: the twin's."""
        twin = copy.copy(self)
        twin.generator = self.generator.clone_state()
        return twin

    def choose(self, logits: torch.Tensor) -> int:
        """(V,) float32 on the CPU -> token id. Ties go to the lowest id."""
        if self.sampling.greedy:
            return int(logits.argmax())
        filtered = self.processors(None, logits[None])  # (1, V); none of the three looks at the ids
        return int(torch.multinomial(filtered.softmax(dim=-1), 1, generator=self.generator))


def candidates(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(V,) -> ids (C,), their probabilities (C,), and all probabilities (V,), before any filter."""
    probabilities = logits.softmax(dim=-1)
    top = probabilities.topk(min(count, len(logits)))
    return top.indices, top.values, probabilities
