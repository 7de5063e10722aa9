"""The figures that follow a run, by name: how to draw each, its table, and the numbers its sentences need.

All three functions take `(run, step, layer, head)`; the first two also the words of the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import plotly.graph_objects as go

from kvviz.figures import attention, memory, predictions, time, work


class Plot(NamedTuple):
    figure: Callable[..., go.Figure]
    table: Callable[..., dict[str, list]]
    values: Callable[..., dict[str, object]]  # "case" names the sentence; values of "…token" are a learner's text


PLOTS: Mapping[str, Plot] = {
    "square": Plot(attention.square, attention.square_table, attention.square_values),
    "row": Plot(attention.row, attention.row_table, attention.row_values),
    "predictions": Plot(predictions.predictions, predictions.predictions_table, predictions.predictions_values),
    "candidates": Plot(predictions.candidates, predictions.candidates_table, predictions.candidates_values),
    "rows": Plot(work.rows, work.rows_table, work.rows_values),
    "rows_total": Plot(work.rows_total, work.rows_table, work.rows_values),
    "bytes": Plot(memory.bytes_held, memory.bytes_table, memory.bytes_values),
    "time": Plot(time.time_a_pass, time.time_table, time.time_values),
}
