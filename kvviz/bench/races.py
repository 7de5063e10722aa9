"""The race's own medians, at the sizes of the lessons and of GPT-2 small."""

from __future__ import annotations

from kvviz.bench.report import ms, show
from kvviz.features.race.measure import race
from kvviz.models.loading import LoadedModel

PROMPT = "Once upon a time there was an old man who lived in a little house by the wood with his wife and a cat. "


def races(story: LoadedModel, small: LoadedModel, *, quick: bool) -> list[dict]:
    """The race's own medians."""
    found = []
    for model, P, N in ((story, 5, 20), (story, 100, 100), (small, 5, 20), (small, 100, 100)):
        if quick and model is small and P == 100:
            continue
        print(f"Race, {P} + {N} tokens, {model.facts.name}")
        *_, last = race(model, PROMPT, N, length=P, repeats=5 if N == 20 else 3)
        without, with_ = last.rows
        for name, lane in (("no cache", last.uncached), ("with the cache", last.cached)):
            show(f"{name}: first token (TTFT)", ms(lane.ttft))
            show(f"{name}: a later token (TPOT)", ms(lane.tpot))
            show(f"{name}: all {N} tokens", f"{lane.cumulative[-1]:8.1f} ms")
        spread = f"({last.ratios.low:.2f} - {last.ratios.high:.2f}, {last.complete} repeats)"
        show("ratio, no cache / cache", f"{last.ratio:8.2f} x  {spread}")
        show("work saved, rows", f"{last.work_ratio:8.1f} x  ({without:,} / {with_:,})")
        show("max |logit difference|", f"{last.max_abs_dlogit.max():8.1e}, {last.same_token.sum()} of {N} tokens equal")
        found.append(
            {
                "model": model.facts.name,
                "P": P,
                "N": N,
                "ttft_ms": {"uncached": last.uncached.ttft._asdict(), "cached": last.cached.ttft._asdict()},
                "tpot_ms": {"uncached": last.uncached.tpot._asdict(), "cached": last.cached.tpot._asdict()},
                "ratio": last.ratio,
                "rows": [without, with_],
            }
        )
    return found
