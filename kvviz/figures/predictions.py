"""What a pass predicts: one token for each position of the prompt, of which one is kept; and its candidates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from kvviz.core import Run
from kvviz.figures import text
from kvviz.figures.frame import MONO, QUARTERS, between, by_position, frame, over_positions
from kvviz.figures.palette import palette

WRITTEN = 24  # positions up to which each bar carries the predicted token


def predictions(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """Prefill's P predictions: the height is the probability of the best one. The last is kept, the rest are not."""
    p = palette(dark)
    ids, probs = _predicted(run)
    P = run.P
    predicted = [text.literal(t) for t in text.tokens(run, ids)]
    prompt = [text.literal(t) for t in text.position_labels(run, P)]
    at, texts = text.ticks(run, P)
    figure = frame(
        run,
        p,
        x=over_positions(run, at, texts, P, words["after_position"]),
        y={**between(0, 1), "title": words["probability"], "tickvals": QUARTERS},
        height=340,
    )
    for name, part, colour, pattern in (
        (words["thrown_away"], slice(0, P - 1), p.thrown, "x"),
        (words["kept"], slice(P - 1, P), p.q, ""),
    ):
        figure.add_trace(
            go.Bar(
                x=np.arange(P)[part],
                y=probs[part],
                name=name,
                marker={
                    "color": colour,
                    "line": {"color": p.text, "width": 0 if pattern else 2},
                    "pattern": {
                        "shape": pattern,
                        "fgcolor": p.background,
                        "bgcolor": colour,
                        "size": 8,
                        "solidity": 0.2,
                    },
                },
                customdata=np.array([prompt, predicted], dtype=object).T[part].tolist(),
                text=[text.literal(text.short(t)) for t in text.tokens(run, ids[part])] if P <= WRITTEN else None,
                textposition="outside",
                textfont={"family": MONO, "size": 12, "color": p.text},
                cliponaxis=False,
                hovertemplate=f"{words['after']} %{{customdata[0]}}<br>{words['prediction']} %{{customdata[1]}}"
                f"<br>{words['probability']} %{{y:.3f}}<extra></extra>",
            )
        )
    return figure


def _predicted(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(P,) int64 ids and (P,) float32 probabilities of prefill's best predictions."""
    first = run.steps[0]
    if first.predictions is None or first.prediction_probs is None:
        raise ValueError("this run kept no predictions of its prefill")
    return first.predictions, first.prediction_probs


def predictions_table(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str]) -> dict[str, list]:
    ids, probs = _predicted(run)
    P = run.P
    follows = text.tokens(run, run.prompt_ids[1:])
    return {
        words["position"]: list(range(P)),
        words["after"]: text.tokens(run, run.prompt_ids),
        words["prediction"]: text.tokens(run, ids),
        words["probability"]: [round(float(q), 3) for q in probs],
        words["prompt_goes_on"]: [*follows, ""],
        words["use"]: [words["thrown_away"]] * (P - 1) + [words["kept"]],
    }


def predictions_values(run: Run, step: int, layer: int, head: int) -> dict[str, object]:
    ids, probs = _predicted(run)
    hits = int((ids[:-1] == run.prompt_ids[1:]).sum())
    return {
        "case": "one" if run.P == 1 else "many",
        "P": text.count(run.P),
        "thrown": text.count(run.P - 1),
        "hits": text.count(hits),
        "token": text.token(run, ids[-1]),
        "last_token": text.token(run, run.prompt_ids[-1]),
        "probability": text.percent(float(probs[-1])),
    }


def candidates(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str], dark: bool) -> go.Figure:
    """The most probable next tokens after pass `step`, the chosen one outlined."""
    p = palette(dark)
    ids, probs, chosen = _candidates(run, step)
    n = len(ids)
    names = [text.literal(t) for t in text.tokens(run, ids)]
    labels = [f"<b>{t}</b>" if i == chosen else t for i, t in enumerate(names)]
    figure = frame(
        run,
        p,
        x={**between(0, 1.1), "title": words["probability"], "tickvals": QUARTERS},
        y={**by_position(run, list(range(n)), labels), **between(n - 0.5, -0.5), "title": words["token"]},
        height=110 + 30 * n,
        showlegend=False,
    )
    figure.add_trace(
        go.Bar(
            x=probs,
            y=np.arange(n),
            orientation="h",
            marker={
                "color": [p.q if i == chosen else p.q_muted for i in range(n)],
                "line": {"color": p.text, "width": [2 if i == chosen else 0 for i in range(n)]},
            },
            text=[f"{q:.3f}" for q in probs],
            textposition="outside",
            textfont={"family": MONO, "size": 12, "color": p.text},
            cliponaxis=False,
            customdata=names,
            hovertemplate=f"%{{customdata}}<br>{words['probability']} %{{x:.4f}}<extra></extra>",
        )
    )
    return figure


def _candidates(run: Run, step: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Ids and probabilities, highest first, and the row of the chosen one; sampling may choose from further down."""
    record = run.steps[step]
    ids, probs = record.top_ids, record.top_probs
    at = np.flatnonzero(ids == record.chosen)
    if len(at):
        return ids, probs, int(at[0])
    return np.append(ids, record.chosen), np.append(probs, np.float32(record.chosen_prob)), len(ids)


def candidates_table(run: Run, step: int, layer: int, head: int, *, words: Mapping[str, str]) -> dict[str, list]:
    ids, probs, chosen = _candidates(run, step)
    return {
        words["token"]: text.tokens(run, ids),
        words["token_id"]: [int(i) for i in ids],
        words["probability"]: [round(float(q), 4) for q in probs],
        words["use"]: [words["chosen"] if i == chosen else "" for i in range(len(ids))],
    }


def candidates_values(run: Run, step: int, layer: int, head: int) -> dict[str, object]:
    record = run.steps[step]
    return {
        "case": "greedy" if run.sampling.greedy else "sampled",
        "token": text.token(run, record.chosen),
        "probability": text.percent(record.chosen_prob),
        "top_token": text.token(run, record.top_ids[0]),
        "top_probability": text.percent(float(record.top_probs[0])),
        "step": step,
    }
