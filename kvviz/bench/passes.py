"""A pass: what capture costs, a whole recorded run against transformers' own, and a new token with its message."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable

import numpy as np
import torch

from kvviz.bench.report import ms, show, target
from kvviz.engine.session import Session
from kvviz.features.race.record import Spread
from kvviz.measure.clock import timed
from kvviz.models.loading import LoadedModel
from kvviz.player import message

CAPTURE_LIMIT, RUN_LIMIT = 1.2, 1.05
STEPS = 8  # decode steps a round


def interleaved(rounds: int, tasks: dict[str, Callable[[], float]]) -> dict[str, np.ndarray]:
    """(rounds,) milliseconds of each task, as it returns them; the order turns with every round."""
    names = list(tasks)
    times: dict[str, list[float]] = {name: [] for name in names}
    for r in range(rounds):
        for name in names if r % 2 == 0 else reversed(names):
            times[name].append(tasks[name]())
    return {name: np.array(ms) for name, ms in times.items()}


def text_of(model: LoadedModel, tokens: int) -> str:
    """A prompt of exactly so many tokens."""
    text = " the" * tokens
    if (found := len(model.encode(text))) != tokens:
        raise RuntimeError(f"the text of {tokens} tokens reads as {found}")
    return text


def _clocked(model: LoadedModel, work: Callable[[], object]) -> float:
    with timed(model.device) as watch:
        work()
    return watch.ms


def capture(model: LoadedModel, rounds: int) -> dict:
    """A decode step recorded with its tensors against the same step without them, from 64 to about 128 tokens."""
    print(f"A decode step with capture, {model.facts.name}")
    sessions = {on: Session(model, text_of(model, 64), compare=False, capture=on) for on in (True, False)}
    for session in sessions.values():
        session.prefill()
        session.advance(4)

    def steps(on: bool) -> float:
        times = [_clocked(model, sessions[on].decode_one_token) for _ in range(STEPS)]
        return float(np.median(times))

    times = interleaved(rounds, {"with": lambda: steps(True), "without": lambda: steps(False)})
    ratio = Spread.of(times["with"] / times["without"])
    show("without capture", ms(Spread.of(times["without"])))
    show("with capture", ms(Spread.of(times["with"])))
    show("with / without", target(ratio, CAPTURE_LIMIT))
    return _report(model, times, ratio, CAPTURE_LIMIT)


def whole_run(model: LoadedModel, rounds: int, P: int = 64, N: int = 64) -> dict:
    """P + N tokens recorded with all weights against `generate(output_attentions=True)` on an eager copy."""
    print(f"A whole captured run, {P} + {N} tokens, {model.facts.name}")
    text = text_of(model, P)
    eager = copy.deepcopy(model.module)
    eager.set_attn_implementation("eager")
    ids = torch.tensor([model.encode(text)], device=model.device)
    options = {"do_sample": False, "max_new_tokens": N, "min_new_tokens": N, "pad_token_id": 0}

    def generate() -> None:
        with torch.inference_mode():
            out = eager.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                output_attentions=True,
                return_dict_in_generate=True,
                **options,
            )
        assert len(out.attentions) == N and out.attentions[0][0].shape[-1] == P

    def record() -> None:
        recorded = Session(model, text, compare=False).advance(N)
        assert len(recorded.steps) == N and recorded.steps[0].attention.shape[-1] == P

    generate(), record()  # warm-up
    tasks = {"kvviz": record, "generate": generate}
    times = interleaved(rounds, {name: lambda work=work: _clocked(model, work) for name, work in tasks.items()})
    ratio = Spread.of(times["kvviz"] / times["generate"])
    show("generate(output_attentions=True)", ms(Spread.of(times["generate"])))
    show("kvviz, recorded", ms(Spread.of(times["kvviz"])))
    show("kvviz / generate", target(ratio, RUN_LIMIT))
    return _report(model, times, ratio, RUN_LIMIT)


def new_token(model: LoadedModel, rounds: int) -> dict:
    """N on the keyboard, as far as Python goes: one more token, compare off, and the message that tells the player."""
    print(f"A new token and its message, {model.facts.name}")
    session = Session(model, text_of(model, 64), compare=False)
    session.prefill()
    have, focus = message.Have(), message.Focus()
    header = {"key": "bench", "language": "en", "mode": "run", "view": [0, 0, 0, "all", None]}
    message.build(session.run, have, focus, header)
    decode, encode, sizes = [], [], []
    for _ in range(rounds * STEPS):
        decode.append(_clocked(model, session.decode_one_token))
        start = time.perf_counter()
        sizes.append(len(message.build(session.run, have, focus, header)))
        encode.append((time.perf_counter() - start) * 1e3)
    both = Spread.of(np.array(decode) + np.array(encode))
    show("decode_one_token, recorded", ms(Spread.of(np.array(decode))))
    show("its message", ms(Spread.of(np.array(encode))))
    show("together", ms(both))
    show("largest message", f"{max(sizes):,} bytes")
    return {"model": model.facts.name, "ms": both._asdict(), "largest_message_bytes": max(sizes)}


def _report(model: LoadedModel, times: dict[str, np.ndarray], ratio: Spread, limit: float) -> dict:
    assert not math.isnan(ratio.median)
    return {
        "model": model.facts.name,
        "ms": {name: ms.round(3).tolist() for name, ms in times.items()},
        "ratio": ratio._asdict(),
        "limit": limit,
        "met": ratio.median <= limit,
    }
