"""The Race page as Streamlit runs it: what it says before, during and after a race, and what its controls start.
The engine is a script here, so that no test waits for a model."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from factories import MACHINE, make_run, model_facts
from still import Still
from streamlit.testing.v1 import AppTest

from kvviz.core.refusal import Refusal
from kvviz.features.race.parts import wish as work
from kvviz.features.race.parts.view import Plan, stretch, view
from kvviz.features.race.parts.wish import RaceWish, WaitsWish
from kvviz.features.race.record import Allocator, Lane, Race, Waits
from kvviz.models.turns import Turns
from kvviz.ui import experiment, job, warm
from kvviz.ui.job import Job, State

pytestmark = pytest.mark.usefixtures("no_models")  # a race runs no passes here
APP = Path(__file__).parent.parent.parent / "app.py"


def a_race(P: int = 5, N: int = 20, slow: float = 3.0, fast: float = 2.0, **changes: object) -> Race:
    """Three repeats in which every pass takes the same: the ratio is slow / fast."""
    ids = np.arange(N) % 2
    fed = np.ones(N, dtype=np.int64)
    fed[0] = P
    facts = model_facts(6, 8, 8, 32)  # 12,288 bytes a token
    lanes = {
        "uncached": Lane(np.full((3, N), slow), np.arange(P, P + N), np.zeros(N, dtype=np.int64), ids),
        "cached": Lane(np.full((3, N), fast), fed, np.arange(P, P + N) * 12_288, ids),
    }
    race = Race(
        key="r1", prompt="a prompt", prompt_ids=np.zeros(P, dtype=np.int64), model=facts, machine=MACHINE,
        pieces={0: b" <b>x</b>", 1: b"\n"}, new=N, repeats=3, ids=ids, **lanes,
        max_abs_dlogit=np.full(N, 2e-5, dtype=np.float32), tolerance=1e-3, state="done",
    )  # fmt: skip
    return dataclasses.replace(race, **changes)


WISH = RaceWish("story-gpt2", "float32", "Dorothy and the Tin Woodman", 20)
WAITS = WaitsWish("story-gpt2", "float32", "Dorothy and the Tin Woodman")


def opened(state: State | None = None, waits: State | None = None, **query: str) -> tuple[AppTest, Still]:
    test = AppTest.from_file(str(APP), default_timeout=60)
    jobs = {"race": Still(state or State()), "race_waits": Still(waits or State())}
    test.session_state["kv_jobs"] = dict(jobs)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    test.switch_page("pages/race.py").run()
    assert not test.exception
    return test, jobs["race"]


def over(race: Race, **more: object) -> State:
    return State(**{"stage": "over", "wish": WISH, "found": race, "answers": WISH, "complete": True} | more)


def lanes(test: AppTest) -> dict:
    """The data of the lanes' component."""
    (found,) = [e.proto for e in test.main if getattr(e.proto, "component_name", "") == "kvviz.race_lanes"]
    return json.loads(found.json)


def facts(data: dict, lane: str) -> dict[str, str]:
    return {label: " ".join(rest).strip() for label, *rest in data["lanes"][lane]["facts"]}


def test_before_the_race():
    test, _ = opened()
    assert [t.value for t in test.title] == ["Does keeping K and V pay on this device?"]
    said = " ".join(c.value for c in test.caption)
    assert "290 rows against 24: 12 times as many." in said
    assert "14,950 rows against 199: 75 times as many." in said
    data = lanes(test)
    assert (data["state"], data["P"], data["N"], data["tokens"]) == ("idle", 9, 20, [])
    assert data["replay"] is None
    assert not test.button(key="race_start").disabled
    assert test.button(key="race_stop").disabled


def test_in_chinese():
    test, _ = opened(lang="中文")
    assert [t.value for t in test.title] == ["在这台设备上，保留 K 和 V 划算吗？"]
    assert lanes(test)["lanes"]["uncached"]["name"] == "无缓存"


def test_a_link_sets_the_controls_and_says_what_it_cannot_use():
    test, racer = opened(race_P="100", race_N="7", race_repeats="0")
    assert test.number_input(key="race_P").value == 100
    assert test.number_input(key="race_N").value == 7
    assert test.number_input(key="race_repeats").value is None
    assert any("race_repeats" in i.value for i in test.info)
    assert (lanes(test)["P"], lanes(test)["N"]) == (100, 7)
    (link,) = [c.value for c in test.code if "?" in c.value and "lang=" in c.value]
    assert "race_P=100&race_N=7" in link
    assert "race_repeats" not in link
    test.button(key="race_start").click().run()
    assert [(w.length, w.new, w.repeats) for w in racer.asked] == [(100, 7, None)]
    assert racer.asked[0].model == "story-gpt2"
    assert racer.asked[0].prompt == "Dorothy and the Tin Woodman"


def test_a_number_typed_just_before_start_is_raced():
    test, racer = opened()
    test.number_input(key="race_N").set_value(50)
    test.button(key="race_start").click().run()  # both in one message, as when a click ends the typing
    assert [w.new for w in racer.asked] == [50]


def test_try_this_sets_the_controls_and_starts():
    test, racer = opened()
    test.button(key="try-race-long").click().run()
    assert (test.number_input(key="race_P").value, test.number_input(key="race_N").value) == (100, 100)
    test.button(key="try-race-waits").click().run()
    assert [(w.length, w.new) for w in racer.asked] == [(100, 100)]
    assert test.session_state.kv_jobs["race_waits"].asked == [WAITS]


def test_while_it_runs():
    test, racer = opened(over(a_race(state="running"), stage="running", complete=False))
    assert test.button(key="race_start").disabled
    assert test.button(key="try-race-short").disabled
    test.button(key="race_stop").click().run()
    assert racer.stopped == 1
    assert lanes(test)["proofs"] == []
    waiting, _ = opened(State("waiting", WISH, key="k", before=2))
    assert lanes(waiting)["say"].startswith("Measurements ahead of yours on this device: 2.")


def test_after_the_race():
    test, _ = opened(over(a_race()))
    data = lanes(test)
    assert (
        "**60.0 ms** without the cache, **40.0 ms** with it. Repeat by repeat that is **1.50×** the speed"
        in data["say"]
    )
    assert "Without the cache there are **12.1×** as many token rows (290 against 24)" in data["say"]
    assert "one row 2.00 ms: most of a pass this small is fixed cost" in data["say"]
    assert data["ratio"]["value"] == "1.50×"
    assert data["first"] == "cached"
    assert data["replay"] == {"stretch": 50.0, "text": "replay: 50 times as long as measured"}
    assert facts(data, "cached")["K and V held"] == "294,912 bytes"
    assert facts(data, "uncached")["K and V held"] == "0 bytes"
    assert [p[2] for p in data["proofs"]] == ["holds", "holds", "plain"]
    assert data["proofs"][0][1] == "20 of 20 tokens given the same prefix, max |Δlogit| 2e-5 (tolerance 1e-3, fp32)"
    assert "n/a" in data["proofs"][2][1]  # A26
    assert data["tokens"][:2] == ["·<b>x</b>", "⏎"]  # literal: the component sets textContent
    told = " ".join(m.value for m in test.markdown)
    assert "A later token took 2.00 ms with the cache and 3.00 ms without" in told
    assert "290 token rows went through the model, 266 of them computed before; with it 24. That is 12.1 times" in told
    charts = [e.proto for e in test.main if getattr(e.proto, "component_name", "") == "kvviz_chart"]
    assert sum("race" in c.id for c in charts) == 3


@pytest.mark.parametrize(
    ("slow", "outcome", "reason"),
    [
        (
            1.8,
            "At **0.90×**, repeat by repeat, the cache did not pay here",
            "one row 2.00 ms. Keeping a cache is work too",
        ),
        (
            2.04,
            "**1.02×**, repeat by repeat, is too close to 1",
            "one row 2.00 ms: most of a pass this small is fixed cost",
        ),
    ],
)
def test_a_cache_that_did_not_pay_is_told_as_it_is(slow, outcome, reason):
    say = view(a_race(slow=slow), key="k", language="en")["say"]
    assert outcome in say
    assert "there are **12.1×** as many rows (290 against 24)" in say
    assert reason in say


@pytest.mark.parametrize(
    ("language", "note", "gap"),
    [
        ("en", "median of 3 repeats; quartiles 1.45 to 1.45×", "With the cache: by the medians it would be 2.00 ms + "
         "19 · 2.00 ms = 40.0 ms; a repeat took 138 ms, for its sum has the slow passes too (up to 100 ms)."),
        ("zh", "3 遍的中位数；四分位数 1.45 到 1.45×", "有缓存：按中位数应是 2.00 毫秒 + 19 · 2.00 毫秒 = 40.0 毫秒，"
         "一遍实际用了 138 毫秒，因为总和把慢的前向（最慢 100 毫秒）也算在内。"),
    ],
)  # fmt: skip
def test_ratio_and_total_are_of_whole_repeats_and_a_gap_to_the_medians_is_explained(language, note, gap):
    """20 passes of 10 ms against 2 ms: 5 by the medians. One pass a repeat takes 100 ms with the cache, each time
    another: 200 / (19 · 2 + 100) = 1.449 repeat by repeat."""
    race = a_race(slow=10)
    ms = race.cached.ms.copy()
    ms[[0, 1, 2], [4, 8, 12]] = 100
    data = view(dataclasses.replace(race, cached=dataclasses.replace(race.cached, ms=ms)), key="k", language=language)
    assert data["ratio"]["value"] == "1.45×"
    assert note in data["ratio"]["note"] and gap in data["say"]
    assert gap.split("2.00")[0] not in view(a_race(slow=10), key="k", language=language)["say"]  # no gap, no word


def test_why_follows_from_the_last_passes():
    def why(slow: float, device: str = "cpu") -> str:
        machine = dataclasses.replace(MACHINE, device=device)
        return view(a_race(slow=slow, machine=machine), key="k", language="en")["say"]

    assert "mostly launching operations and reading the weights" in why(3, "cuda:0")
    assert "far more than its share" in why(10)
    assert "the rows are what takes the time" in why(40)  # 22 rows, twenty times the time


def test_nothing_is_compared_before_sixteen_passes():
    short = a_race(N=6)  # 3 · 5 = 15 passes after the first
    data = view(short, key="k", language="en")
    assert data["say"].startswith("Timed so far: 15 of 16 passes a lane, too few to compare")
    assert data["ratio"]["value"] == "–"
    assert facts(data, "cached")["a later token (TPOT)"] == "– measuring, 15 of 16 passes"
    assert data["first"] is None
    enough = view(a_race(N=17), key="k", language="en")
    assert facts(enough, "cached")["a later token (TPOT)"] == "2.00 ms median (2.00 – 2.00 ms)"


def test_unequal_lanes_are_not_called_equal():
    race = a_race(max_abs_dlogit=np.full(20, 0.5, dtype=np.float32))
    name, _, verdict = view(race, key="k", language="en")["proofs"][0]
    assert (name, verdict) == ("not equal", "fails")
    held = dataclasses.replace(race.cached, bytes_held=race.cached.bytes_held + 4)
    _, (name, said, verdict), memory = view(
        a_race(cached=held, allocator=Allocator(2**20, 2**21, 2**22)), key="k", language="en"
    )["proofs"]
    assert (said, verdict) == ("294,916 bytes, the formula says 294,912", "fails")
    assert memory[1].startswith("1.00 MiB allocated, 2.00 MiB reserved, 4.00 MiB at the peak")


def test_replays_take_a_few_seconds():
    assert [stretch(ms) for ms in (40, 300, 1999, 2000, 20_000, 30_000, 90_000)] == [100, 10, 2, 1, 1, 1 / 2, 1 / 5]
    assert view(Plan(5, 20), key="k", language="zh")["replay"] is None


def test_waits_are_charted():
    found = Waits(
        "w",
        (10, 800),
        np.array([[4.0] * 4, [84.0] * 4]),
        np.full((2, 4, 6), 3.0),
        model_facts(6, 8, 8, 32),
        MACHINE,
        "done",
    )
    test, _ = opened(waits=State("over", WAITS, found, WAITS, complete=True))
    told = " ".join(m.value for m in test.markdown)
    assert "From 10 to 800 prompt tokens the first token takes 21.0 times as long (4.00 ms, then 84.0 ms)" in told
    assert "The chart is under the buttons." not in told  # a race has been asked for since


def test_the_first_token_is_answered_above_its_button():
    """The chart comes below the fold: while it is measured and when it is there, the lanes' own place says so."""
    shape = (2, 4, 6)
    found = Waits(
        "w",
        (10, 800),
        np.array([[4.0] * 4, [84.0] * 4]),
        np.full(shape, 3.0),
        model_facts(6, 8, 8, 32),
        MACHINE,
        "done",
    )
    for state, says in (
        (State("running", WAITS, started=1.0), "Measuring: each prompt several times, in turn."),
        (State("over", WAITS, found, WAITS, True, started=1.0), "the first token takes 21.0 times as long"),
    ):
        test, _ = opened(waits=state)
        page = [(getattr(e, "key", None), str(getattr(e, "value", ""))) for e in test.main]
        answered = next(i for i, (_, said) in enumerate(page) if says in said and "chart is under the buttons" in said)
        assert answered < [key for key, _ in page].index("try-race-waits")


def test_a_run_whose_model_is_not_here_cannot_race():
    test = AppTest.from_file(str(APP), default_timeout=60)
    test.session_state["kv_opened"] = make_run(name="no-such-model", N=3)
    test.run()
    test.switch_page("pages/race.py").run()
    assert test.button(key="race_start").disabled
    assert any("no-such-model" in c.value for c in test.caption)


class Stage:
    """An engine whose races go on when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, error: BaseException | None = None) -> None:
        from kvviz.features.race import measure as engine

        self.go, self.error, self.stops = threading.Semaphore(0), error, []
        model = SimpleNamespace(device="cpu", lock=Turns())
        monkeypatch.setattr(job.warm, "model", lambda name, dtype: model)
        monkeypatch.setattr(engine, "race", self.race)
        monkeypatch.setattr(job, "_queues", {})

    def race(self, model, prompt, new, *, stop, **_):
        self.stops.append(stop)
        if self.error:
            raise self.error
        for n in range(1, new + 1):
            assert self.go.acquire(timeout=30)
            if stop.is_set():
                yield a_race(N=max(1, n - 1), state="stopped")
                return
            yield a_race(N=n, state="done" if n == new else "running")


def wish(prompt: str, new: int) -> RaceWish:
    return RaceWish("m", "float32", prompt, new)


def until(racer: Job, wanted) -> State:
    """The first state for which `wanted` holds; the test fails after half a minute."""
    tick = threading.Event()
    for _ in range(3000):
        state = racer.state()
        if wanted(state):
            return state
        tick.wait(0.01)
    raise AssertionError(f"still {racer.state()}")


def test_a_race_runs_and_stops_between_two_tokens(monkeypatch):
    stage, racer = Stage(monkeypatch), Job(work.race)
    racer.start(wish("p", 5))
    stage.go.release()
    assert until(racer, lambda s: s.fresh is not None).stage == "running"
    racer.stop()
    stage.go.release()
    over = until(racer, lambda s: not s.busy)
    assert (over.stage, over.fresh.state, over.failed, over.refusal) == ("over", "stopped", False, None)


def test_the_second_race_waits_for_the_first(monkeypatch):
    stage, first, second = Stage(monkeypatch), Job(work.race), Job(work.race)
    first.start(wish("p", 1))
    until(first, lambda s: s.stage == "running")
    second.start(wish("p", 1))
    assert until(second, lambda s: s.stage == "waiting" and s.before).before == 1
    stage.go.release()
    until(first, lambda s: not s.busy)
    until(second, lambda s: s.stage == "running")
    stage.go.release()
    assert until(second, lambda s: not s.busy).fresh.n == 1


def test_a_new_start_replaces_the_race_at_hand(monkeypatch):
    stage, racer = Stage(monkeypatch), Job(work.race)
    racer.start(wish("p", 3))
    key = until(racer, lambda s: s.stage == "running" and stage.stops).key
    racer.start(wish("other", 2))
    assert stage.stops[0].is_set()
    for _ in range(4):
        stage.go.release()
    over = until(racer, lambda s: not s.busy)
    assert over.key != key
    assert (over.wish.prompt, over.fresh.n, over.fresh.state) == ("other", 2, "done")


def test_what_the_engine_declines_is_a_sentence(monkeypatch):
    Stage(monkeypatch, error=Refusal("too_many_new", model="m", P=1000, new=50, room=25, limit=1024))
    racer = Job(work.race)
    racer.start(wish("p", 50))
    refused = until(racer, lambda s: not s.busy)
    assert refused.refusal.code == "too_many_new"
    test, _ = opened(refused)
    assert any("1,024" in w.value and "25" in w.value for w in test.warning)


def test_a_race_nobody_looks_at_ends(monkeypatch):
    stage, racer = Stage(monkeypatch), Job(work.race)
    monkeypatch.setattr(WaitsWish, "unseen_seconds", -1.0)  # any time is too long
    racer.start(wish("p", 50))
    for _ in range(3):
        stage.go.release()
    over = until(racer, lambda s: not s.busy)
    assert (over.stage, over.failed, over.stopped, over.unseen) == ("over", False, True, True)


def test_start_is_off_once_the_model_was_refused(monkeypatch):
    """Its files are there, and loading them came to a sentence: a race could only come to the same."""
    refusal = Refusal("load_failed", model="story-gpt2", reason="the file is cut off")
    monkeypatch.setattr(experiment.warm, "status", lambda name, dtype="float32": warm.Status("failed", 1.0, refusal))
    test, _ = opened()
    assert test.button(key="race_start").disabled
    assert test.button(key="try-race-short").disabled
    assert any("the file is cut off" in c.value for c in test.caption)
