"""Ladder as Streamlit runs it: before, during and after a climb, and results kept beside each other."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from paper_ladder import ladder, lane
from reading import components, outside_code, text_of
from still import Still
from streamlit.testing.v1 import AppTest

from kvviz.core import lessons, storage
from kvviz.core.refusal import Refusal
from kvviz.features.ladder import parts as ladder_page
from kvviz.features.ladder.parts import controls
from kvviz.features.ladder.parts.wish import LadderWish, ReadsWish
from kvviz.features.ladder.record.ladder import Ladder, Read, Reads
from kvviz.features.ladder.spec import SPEC
from kvviz.features.race.record import Allocator
from kvviz.ui import links
from kvviz.ui.job import State

pytestmark = pytest.mark.usefixtures("no_models")

RUN = storage.bundled()  # nine prompt tokens; 12,288 bytes of K and V a position
MODEL = (RUN.model.name, RUN.model.dtype, RUN.prompt)
THREE = tuple((cache, "sdpa", "", False) for cache in ("none", "concatenated", "preallocated"))
WISH = LadderWish(*MODEL, 64, None, 1, THREE, False)
HOSTILE = "<b>$x$ `a|b` ![](x)"


def climbed(tpot: dict[str, float] | None = None, **other) -> Ladder:
    """9 + 64 tokens of the recorded run's model: 6, 4 and 2 ms a later token, twice."""
    held = {"none": np.zeros(64), "concatenated": (9 + np.arange(64)) * 12_288, "preallocated": np.full(64, 884_736)}
    times = tpot or {"none": 6.0, "concatenated": 4.0, "preallocated": 2.0}
    rungs = [
        lane(cache, "sdpa", [[9.0, *[ms] * 63]] * 2, held=held[cache].astype(np.int64), warm_up=np.array([36.0, 5, 6]))
        for cache, ms in times.items()
    ]
    return dataclasses.replace(ladder(rungs, P=9, N=64), **{"model": RUN.model, "machine": RUN.machine} | other)


def read_512() -> Reads:
    read = 512 * 12_288
    layouts = (
        Read("contiguous", np.full(25, 4.0), np.zeros(0), read, read),
        Read("view", np.full(25, 5.0), np.zeros(0), read, read),
        Read("blocks", np.full(25, 8.0), np.full(25, 3.0), read, 3 * read),
    )
    return Reads("r", RUN.model, RUN.machine, 512, 1024, 16, 25, layouts, 2e-7, "done")


def with_found(opened, found: Ladder | None = None, *, state: dict | None = None, **query: str):
    over = State("over", WISH, found or climbed(), WISH, complete=True)
    over_reads = State("over", ReadsWish(*MODEL, 512), read_512(), ReadsWish(*MODEL, 512), complete=True)
    still = {"ladder": Still(over), "reads": Still(over_reads)}
    return opened("ladder", state={"kv_jobs": dict(still)} | (state or {}), **query), still


def clean(app: AppTest, language: str = "en") -> str:
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [t.value for t in app.title] == [lessons.text(language, "ladder", "title")]
    shown = text_of(app)
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"
    return shown


def link_of(app: AppTest) -> str:
    (link,) = [c.value for c in app.code if "?" in c.value and "lang=" in c.value]
    return link


def check_empty(app: AppTest, language: str) -> None:
    """Before each of 63 appends 9 + 10 + … + 71 = 2,520 old positions are copied: 30,965,760 bytes; 774,144 are new."""
    shown = clean(app, language)
    for number in ("2,520", "12,288", "30,965,760", "774,144"):
        assert shown.count(number) >= 2, number  # beside the plan, and below
    assert components(app).count("kvviz_chart") == 1
    assert lessons.text(language, "ladder", "warm_none") in shown
    assert lessons.text(language, "ladder", "reads_heading") in shown
    assert app.button(key="ladder_keep").disabled
    assert not app.button(key="ladder_start").disabled and app.button(key="ladder_stop").disabled
    assert not app.button(key="reads_start").disabled


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_before_the_first_start_the_page_says_what_will_be(opened, language):
    check_empty(opened("ladder", lang=language), language)


@pytest.mark.parametrize("part", ["hero", "below", "reading", "kept"])
def test_without_a_part_the_empty_page_fails(opened, monkeypatch, part):
    monkeypatch.setattr(ladder_page, part, lambda *_, **__: None)
    with pytest.raises((AssertionError, KeyError)):
        check_empty(opened("ladder"), "en")


def test_the_plan_follows_the_controls(opened):
    """P = 100, N = 3, twice: before two appends 100 + 101 positions are copied, of 24,576 bytes."""
    shown = clean(opened("ladder", ladder_P="100", ladder_N="3", ladder_B="2"))
    assert shown.count("4,939,776 bytes") == 2 and shown.count("49,152 bytes") == 2


def check_found(app: AppTest, language: str) -> None:
    shown = clean(app, language)
    chips = lessons.sections(language, "ladder")
    quickest, slowest = (chips[f"ladder_lanes_{cache}_sdpa"] for cache in ("preallocated", "none"))
    answer = app.main.markdown[0].value
    for said in (f"**{quickest}**", slowest, "2.00 ms", "6.00 ms", "3.00", "14"):  # from 14 positions: 9 + 1 + 4
        assert said in answer, said
    (card,) = [m.value for m in app.markdown if m.value.startswith(f"| {chips['axis_lane']} ")]
    assert [line.split("|")[2:4] for line in card.splitlines()[2:]] == [
        [" 9.00 ", " 6.00 "], [" 9.00 ", " 4.00 "], [" 9.00 ", " 2.00 "],
    ]  # fmt: skip
    assert components(app).count("kvviz_chart") == 2  # lanes and layouts
    sign = f"**✓ {lessons.text(language, 'shell', 'verdict_holds')}**"
    proofs = [m.value for m in app.markdown if m.value.startswith(sign)]
    assert len(proofs) == 2 and proofs[0].count("64") == 2 and proofs[1].count("2") == 2
    assert shown.count("30,965,760") == 1 and shown.count("774,144") == 1
    assert "36.0 ms" in shown and "4.0" in shown  # the very first prefill beside 9.00
    assert "6.00 MiB" in shown and "18.0 MiB" in shown  # 512 positions read, and moved in blocks
    assert not app.button(key="ladder_keep").disabled


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "Over 3 such lanes TTFT goes from 12.3 to 32.2 ms, 2.62 times as long"),
        ("zh", "TTFT 从 12.3 到 32.2 ms，最长是最短的 2.62 倍"),
    ],
)
def test_first_tokens_that_differ_are_explained(opened, language, said):
    """The same prefill in three lanes: 15.2, 32.2, 12.3 ms; 32.2 / 12.3 = 2.618."""
    found = climbed()
    rungs = [
        dataclasses.replace(rung, ms=np.hstack([np.full((2, 1), ms), rung.ms[:, 1:]]))
        for rung, ms in zip(found.rungs, (15.2, 32.2, 12.3), strict=True)
    ]
    app, _ = with_found(opened, dataclasses.replace(found, rungs=tuple(rungs)), lang=language)
    assert said in clean(app, language)
    assert said.split(" 12.3")[0] not in clean(with_found(opened, lang=language)[0], language)  # 9 ms in all three


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_a_result_is_told_with_its_numbers(opened, language):
    check_found(with_found(opened, lang=language)[0], language)


@pytest.mark.parametrize("part", ["hero", "below", "reading", "kept", "proofs"])
def test_without_a_part_that_test_fails(opened, monkeypatch, part):
    monkeypatch.setattr(ladder_page, part, lambda *_, **__: None)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check_found(with_found(opened)[0], "en")


@pytest.mark.parametrize("view", ["time", "clock", "tokens", "bytes"])
def test_a_link_opens_a_view_and_a_pill_changes_it(opened, view):
    app, _ = with_found(opened, ladder_view=view)
    clean(app)
    assert app.session_state["ladder_view"] == view
    assert f"ladder_view={view}" in link_of(app)


def test_faults_are_said_in_words(opened):
    """One lane chose another token at step 1; another holds four bytes too many."""
    none, grown, whole = climbed().rungs
    grown = dataclasses.replace(grown, chosen=np.where(np.arange(64) == 1, 63, grown.chosen))
    whole = dataclasses.replace(whole, held=whole.held + 4)
    memory = Allocator(2**20, 2**21, 2**22)
    shown = clean(with_found(opened, climbed(rungs=(none, grown, whole), allocator=memory))[0])
    assert "**✗ fails** the same token in every lane: only 63 of 64. A lane computes something else." in shown
    assert "**✗ fails** bytes counted on the storages = formula only in 1 of 2 lanes" in shown
    assert "1.00 MiB allocated, 2.00 MiB reserved, 4.00 MiB at most" in shown


def test_start_asks_for_what_the_controls_say(opened):
    app, still = with_found(opened, ladder_P="5", ladder_N="30", ladder_B="4", ladder_more="half,generate",
                            ladder_lanes="none-eager,preallocated-sdpa")  # fmt: skip
    app.number_input(key="ladder_N").set_value(20)  # both in one message, as when a click ends the typing
    app.button(key="ladder_start").click().run()
    lanes = (("none", "eager", "", False), ("preallocated", "sdpa", "", False),
             ("preallocated", "sdpa", "bfloat16", False))  # fmt: skip
    wanted = LadderWish(*MODEL, 20, 5, 4, lanes, True)
    assert still["ladder"].asked == [wanted]
    shown = clean(app)
    assert "These figures belong to" in shown and "9 + 64 tokens, batch 1" in shown  # what is shown is another climb
    app.number_input(key="ladder_T").set_value(100)
    app.button(key="reads_start").click().run()
    assert still["reads"].asked == [ReadsWish(*MODEL, 100)]


def test_while_it_runs_only_stop_can_be_pressed(opened):
    rungs = tuple(dataclasses.replace(r, ms=r.ms[:1, :n], held=r.held[:n], chosen=r.chosen[:n])
                  for r, n in zip(climbed().rungs, (16, 12, 10), strict=True))  # fmt: skip
    still = {"ladder": Still(State("running", WISH, climbed(rungs=rungs, state="running"), WISH))}
    app = opened("ladder", state={"kv_jobs": dict(still)})
    assert "10 of 64 tokens in every lane; complete rounds: 0" in clean(app)
    (card,) = [m.value for m in app.markdown if m.value.startswith("| lane ")]
    # 15, 11 and 9 later passes: none is compared before 16
    assert [line.split("|")[2:4] for line in card.splitlines()[2:]] == [[" 9.00 ", " – "]] * 3
    assert components(app).count("kvviz_chart") == 1
    assert app.button(key="ladder_start").disabled and app.button(key="ladder_keep").disabled
    assert "30,965,760" in text_of(app)  # below the fold the plan stays until there is a result
    app.button(key="ladder_stop").click().run()
    assert still["ladder"].stopped == 1


@pytest.mark.parametrize("passes", [0, 1, 10])
def test_one_that_was_stopped_early_says_how_far_it_came(opened, passes):
    rungs = tuple(dataclasses.replace(r, ms=r.ms[: min(passes, 1), :passes], held=r.held[:passes],
                                      chosen=r.chosen[:passes], warm_up=r.warm_up[:passes])
                  for r in climbed().rungs)  # fmt: skip
    found = climbed(rungs=rungs, state="stopped")
    state = State("over", WISH, found, WISH, stopped=True)
    for view in SPEC.fields["ladder_view"].words:
        app = opened("ladder", state={"kv_jobs": {"ladder": Still(state)}}, ladder_view=view)
        shown = clean(app)
        assert f"{passes} of 64 tokens in every lane; complete rounds: 0" in shown
        assert lessons.text("en", "shell", "experiment_stopped") in shown


def test_what_the_engine_declines_is_a_sentence(opened):
    refusal = Refusal("too_many_new", model="m", P=1000, new=64, room=25, limit=1024)
    state = State("over", WISH, climbed(), WISH, refusal=refusal)
    app = opened("ladder", state={"kv_jobs": {"ladder": Still(state)}})
    assert any("1,024" in w.value and "25" in w.value for w in app.warning)
    assert "**preallocated, SDPA** is the quickest here" in clean(app)  # what was there stays


def test_with_no_lane_there_is_nothing_to_start(opened):
    app = opened("ladder", ladder_lanes="")
    shown = clean(app)
    assert lessons.text("en", "ladder", "no_lane") in shown
    assert app.button(key="ladder_start").disabled
    assert "ladder_lanes=" in link_of(app)


def test_tries_set_the_controls_and_start(opened):
    app, still = with_found(opened)
    for name, new, length, lanes in (("short", 20, 5, 3), ("every", 128, None, 6), ("half", 48, None, 6)):
        app.button(key=f"try-ladder-{name}").click().run()
        clean(app)
        wish = still["ladder"].asked[-1]
        assert (wish.new, wish.length, len(wish.lanes)) == (new, length, lanes)
        assert app.number_input(key="ladder_N").value == new and app.number_input(key="ladder_P").value == length
    assert [lane[2] for lane in wish.lanes] == [""] * 3 + ["bfloat16"] * 3


@pytest.mark.parametrize(("file_s", "model_s", "offered"), [
    ("cpu", "cuda:0", True), ("cuda:0", "cpu", False), ("cuda:0", None, False), ("cpu", None, False),
])  # fmt: skip
def test_a_graph_is_offered_where_the_model_is_on_cuda(opened, monkeypatch, file_s, model_s, offered):
    """What counts is this machine, not the one that a recorded run comes from."""
    run = dataclasses.replace(RUN, machine=dataclasses.replace(RUN.machine, device=file_s))
    model = SimpleNamespace(machine=SimpleNamespace(device=model_s)) if model_s else None
    mine = sys.modules[controls.__module__]  # the rest of the app finds no model
    monkeypatch.setattr(mine, "warm", SimpleNamespace(loaded=lambda name, dtype: model))
    still = {"ladder": Still(State())}
    app = opened("ladder", state={"kv_jobs": dict(still), "kv_opened": run}, ladder_more="compiled")
    clean(app)
    app.button(key="ladder_start").click().run()
    (wish,) = still["ladder"].asked
    assert (("preallocated", "sdpa", "", True) in wish.lanes) is offered


def test_copy_link_holds_lanes_and_view(opened):
    query = {"ladder_lanes": "none-eager,concatenated-eager", "ladder_more": "half", "ladder_N": "17", "ladder_T": "99"}
    app = opened("ladder", **query).run()  # the sidebar is drawn before the page's controls exist
    clean(app)
    found = links.own(SPEC.fields, links.query(link_of(app).partition("?")[2]))
    assert found == links.own(SPEC.fields, query) | {"ladder_B": 1, "ladder_view": "time"}
    assert list(app.session_state["ladder_lanes"]) == ["none-eager", "concatenated-eager"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("ladder_lanes", "none-flash"), ("ladder_lanes", "none-sdpa,<b>$x$"), ("ladder_more", "turbo"),
     ("ladder_view", "pie"), ("ladder_N", "1"), ("ladder_B", "65"), ("ladder_P", "many"), ("ladder_T", "0")],
)  # fmt: skip
def test_nonsense_in_a_link_gets_a_note(opened, name, value):
    app = opened("ladder", **{name: value})
    shown = clean(app)
    assert any(name in i.value and value in i.value for i in app.info)
    assert "<b>" not in outside_code(shown) and "$x$" not in outside_code(shown)
    assert list(app.session_state["ladder_lanes"]) == ["none-sdpa", "concatenated-sdpa", "preallocated-sdpa"]


def test_lengths_that_do_not_fit_are_refused_before_start(opened):
    """1,024 positions: after 1,000 prompt tokens 25 can be chosen, since the last one is never fed."""
    app = opened("ladder", ladder_P="1000", ladder_N="26")
    assert "New tokens that fit: 25, not 26" in clean(app)
    assert app.button(key="ladder_start").disabled
    app = opened("ladder", ladder_P="1000", ladder_N="25")
    assert "New tokens that fit" not in clean(app) and not app.button(key="ladder_start").disabled


@pytest.mark.parametrize("query", [{"ladder_lanes": ""}, {"ladder_N": "1024"}])
def test_stop_is_there_while_it_climbs_whatever_the_controls_say_now(opened, query):
    climbing = State("running", WISH, climbed(state="running"), WISH)
    still = {"ladder": Still(climbing)}
    app = opened("ladder", state={"kv_jobs": dict(still)}, **query)
    clean(app)
    assert app.button(key="ladder_start").disabled
    app.button(key="ladder_stop").click().run()
    assert still["ladder"].stopped == 1


def test_what_was_read_of_another_prompt_does_not_stand_under_this_run(opened):
    other = ReadsWish(MODEL[0], MODEL[1], "another prompt", 512)
    app = opened("ladder", state={"kv_jobs": {"reads": Still(State("over", other, read_512(), other, complete=True))}})
    clean(app)
    drawn = [e.proto.id for e in app.main if getattr(e.proto, "component_name", "") == "kvviz_chart"]
    assert not [key for key in drawn if "ladder-reads" in key]
