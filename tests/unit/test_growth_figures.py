"""The triangles and curves of a generation show what was counted."""

from __future__ import annotations

import dataclasses

from factories import make_run

from kvviz.core import lessons
from kvviz.features.problem import figure as figures
from kvviz.features.problem.record import of_run

WORDS = {k.removeprefix("axis_"): v for k, v in lessons.sections("en", "problem").items() if k.startswith("axis_")}


def shapes(trace) -> list[tuple[float, float, float]]:
    """(from, to, pass) of each stretch that a trace fills."""
    found, x, y = [], list(trace.x), list(trace.y)
    for i in range(0, len(x), 6):
        found.append((x[i] + 0.5, x[i + 1] + 0.5, round(y[i] + 0.46)))
    return found


def test_the_triangle_draws_what_was_computed():
    found = of_run(make_run(P=3, N=3))
    drawn = figures.triangle(found, words=WORDS, dark=False)
    fresh, again, fresh_kept, kept = drawn.data[:4]
    assert shapes(fresh) == shapes(fresh_kept) == [(0, 3, 0), (3, 4, 1), (4, 5, 2)]
    assert shapes(again) == [(0, 3, 1), (0, 4, 2)]
    assert again.fillpattern.shape == "/"
    assert shapes(kept) == [(0, 3, 1), (0, 4, 2)]
    assert (fresh.xaxis, again.xaxis, fresh_kept.xaxis, kept.xaxis) == ("x", "x", "x2", "x2")
    assert "token rows: 12" in drawn.layout.annotations[0].text  # 3 + 4 + 5
    assert "token rows: 5" in drawn.layout.annotations[1].text


def test_the_triangle_keeps_its_frame_while_it_grows():
    whole = of_run(make_run(P=3, N=6))
    frames = [figures.triangle(whole.upto(n), words=WORDS, dark=False).layout for n in (1, 3, 6)]
    for part in ("xaxis", "xaxis2", "yaxis"):
        ends = {str(f[part].autorangeoptions) for f in frames}
        assert len(ends) == 1, part
    assert shapes(figures.triangle(whole.upto(1), words=WORDS, dark=False).data[0]) == [(0, 3, 0)]


def test_the_table_names_the_rows_that_get_q_k_and_v():
    table = figures.growth_table(of_run(make_run(P=3, N=3)), words=WORDS)
    assert table["get Q, K, V, no cache"] == ["0 – 2", "0 – 3", "0 – 4"]
    assert table["get Q, K, V, cache"] == ["0 – 2", "3", "4"]
    assert table["scores, no cache"] == [9, 16, 25]
    assert table["scores, cache"] == [9, 4, 5]
    assert table["causal scores, cache"] == [6, 4, 5]


def test_tokens_on_the_triangle_are_literal():
    found = of_run(make_run(prompt=[b"<b>", b"$x$"], N=2))
    ticks = figures.triangle(found, words=WORDS, dark=False).layout.xaxis.ticktext
    assert ticks[0] == "&lt;b&gt; 0" and "&#36;x&#36;" in ticks[1]


def test_curves_end_where_the_formula_does():
    found = of_run(make_run(P=5, N=20))
    for quantity, without, kept in (("rows", 290, 24), ("scores", 4_870, 310), ("visible", 2_580, 300)):
        drawn = figures.curves(found, words=WORDS, dark=False, quantity=quantity, P=5, to=20)
        ends = [t.y[-1] for t in drawn.data]
        assert ends == [without, without, kept, kept]  # formula and count, twice
        values = figures.curves_values(found, quantity, 5, 20)
        assert (values["without"], values["kept"]) == (f"{without:,}", f"{kept:,}")
    other = figures.curves(found, words=WORDS, dark=False, quantity="rows", P=6, to=20)
    assert [len(t.x) for t in other.data] == [20, 0, 20, 0]  # a prompt of 6 was not counted
    table = figures.curves_table(found, words=WORDS, quantity="rows", P=5, to=30)
    assert table["no cache, counted"][19] == 290 and table["no cache, counted"][20] is None


def test_sentences_name_the_counts():
    values = figures.growth_values(dataclasses.replace(of_run(make_run(P=5, N=20)), matrix_values=100))
    assert (values["rows_without"], values["rows_kept"], values["again"]) == ("290", "24", "266")
    assert (values["visible_without"], values["visible_kept"]) == ("2,580", "300")
    # 2·100·24 + 4·32·8·6·310 + 2·(22·256)·20
    assert values["flops_kept"] == f"{_engineering(4_800 + 1_904_640 + 225_280)}FLOP"
    assert figures.growth_values(of_run(make_run(P=5, N=1)))["case"] == "prefill"
    assert figures.growth_values(of_run(make_run(P=5, N=2)))["flops_kept"] == "–"


def _engineering(n: int) -> str:
    return f"{n / 1e6:.2f} M"
