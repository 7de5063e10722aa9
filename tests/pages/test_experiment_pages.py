"""The problem and Why caching is allowed: with no model, while an experiment runs, and with what it has found."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import pytest
from factories import PLAYER_CASES, make_run
from reading import components, outside_code, text_of
from still import Still
from streamlit.testing.v1 import AppTest

from kvviz.core import lessons, storage
from kvviz.core.refusal import Refusal
from kvviz.features.permission.parts import BreakWish, EditWish
from kvviz.features.problem.parts import GrowthWish
from kvviz.ui import charts, experiment, kit
from kvviz.ui.job import State

pytestmark = pytest.mark.usefixtures("no_models")

PROMPT = storage.bundled().prompt  # nine tokens
MODEL = ("story-gpt2", "float32")
GROWTH = GrowthWish(*MODEL, PROMPT, 20, 5)
EDIT = EditWish(*MODEL, PROMPT, 3, " the", "replace")
BREAK = BreakWish(*MODEL, PROMPT)


@pytest.fixture(scope="module")
def results() -> dict[str, State]:
    """What the experiments find on the recorded run's prompt, with the model itself."""
    from kvviz.engine import load
    from kvviz.features.permission.measure import breaks, permission
    from kvviz.features.problem import measure as growth

    model = load("story-gpt2", device="cpu")
    (edited,) = permission.compare(model, PROMPT, 3, " the")
    *_, grown = growth.generate(model, PROMPT, 20, 5)
    *_, broken = breaks.all_kinds(model, PROMPT, 4)
    found = {"problem": (GROWTH, grown), "permission": (EDIT, edited), "broken": (BREAK, broken)}
    return {n: State("over", wish, result, wish, complete=True) for n, (wish, result) in found.items()}


def with_states(opened, page: str, states: dict[str, State], **query: str) -> tuple[AppTest, dict[str, Still]]:
    still = {name: Still(state) for name, state in states.items()}
    return opened(page, state={"kv_jobs": dict(still)}, **query), still


def check(app: AppTest, name: str, language: str, known: tuple[str, ...], charts_wanted: int) -> None:
    assert not app.exception
    assert [e.value for e in app.error] == []
    assert [t.value for t in app.title] == [lessons.text(language, name, "title")]
    shown = text_of(app)
    assert [k for k in known if k not in shown] == []
    assert components(app).count("kvviz_chart") == charts_wanted
    assert "{" not in outside_code(shown), "a placeholder was left unfilled"


def proofs_of(app: AppTest, language: str = "en") -> list[str]:
    sign = f"**✓ {lessons.text(language, 'shell', 'verdict_holds')}**"
    return [m.value for m in app.main.markdown if m.value.startswith(sign)]


# The run that ships: 9 prompt tokens. 20 passes: 9 + … + 28 = 370 rows, with the cache 28.
RECORDED = {"problem": (("370", "342", "7,510", "442"), 2), "permission": (("(1, 8, 1, 32)",), 0)}
# 5 + 20 live; the edit of position 3: 2 tensors · 6 layers · 3 positions before it.
FOUND = {"problem": (("290", "4,870", "2,580", "300", "3,563,520"), 2), "permission": (("36", "62", "86,016"), 1)}


@pytest.mark.parametrize("language", lessons.LANGUAGES)
@pytest.mark.parametrize("name", list(RECORDED))
def test_without_a_model_a_page_shows_what_the_recorded_run_says(opened, name, language):
    check(opened(name, lang=language), name, language, *RECORDED[name])


@pytest.mark.parametrize("language", lessons.LANGUAGES)
@pytest.mark.parametrize("name", list(FOUND))
def test_a_page_shows_what_its_experiment_found(opened, results, name, language):
    app, _ = with_states(opened, name, results, lang=language)
    check(app, name, language, *FOUND[name])
    assert len(proofs_of(app, language)) == {"problem": 5, "permission": 6}[name]


@pytest.mark.parametrize(("name", "part"), [("problem", "live"), ("permission", "live"), ("permission", "proofs")])
def test_a_page_without_its_body_fails_that_test(opened, results, monkeypatch, name, part):
    monkeypatch.setattr(kit if part == "proofs" else experiment, part, lambda *_, **__: None)
    app, _ = with_states(opened, name, results)
    with pytest.raises(AssertionError):
        check(app, name, "en", *FOUND[name])
        assert proofs_of(app)


def test_pages_stand_in_the_order_of_the_story(opened):
    links = [e.proto.label for e in opened("problem").main.get("page_link")]
    assert links == ["Before: Home", "Next: Why it works"]


def test_generate_takes_the_controls_and_the_links(opened, results):
    app, still = with_states(opened, "problem", {"problem": State()}, work_P="5", work_N="7")
    assert app.number_input(key="work_P").value == 5
    app.button(key="problem_start").click().run()
    assert still["problem"].asked == [GrowthWish(*MODEL, PROMPT, 7, 5)]
    (link,) = [c.value for c in app.code if "?" in c.value and "lang=" in c.value]
    assert "work_P=5&work_N=7" in link
    app.button(key="try-problem-middle").click().run()
    assert still["problem"].asked[1:] == [GrowthWish(*MODEL, PROMPT, 30, 4)]
    assert (app.number_input(key="work_P").value, app.number_input(key="work_N").value) == (4, 30)


def test_a_link_says_what_it_cannot_use(opened):
    app = opened("problem", work_N="1000", work_P="5")
    assert any("work_N" in i.value and "200" in i.value for i in app.info)
    app = opened("permission", edit_how="sideways", edit_to="x" * 41, edit="2")
    assert any("sideways" in i.value and "replace, insert" in i.value for i in app.info)
    assert any("edit_to" in i.value and "40" in i.value for i in app.info)
    assert app.number_input(key="edit").value == 2


def test_while_passes_come_stop_is_there(opened, results):
    half = dataclasses.replace(results["problem"], stage="running", complete=False)
    app, still = with_states(opened, "problem", {"problem": half})
    assert app.button(key="problem_start").disabled
    app.button(key="problem_stop").click().run()
    assert still["problem"].stopped == 1
    queued = dataclasses.replace(half, before=3)
    app, _ = with_states(opened, "problem", {"problem": queued})
    assert "Passes that come first at this model, of other pages or people: 3." in text_of(app)


def test_fewer_passes_can_be_shown(opened, results):
    app, _ = with_states(opened, "problem", results)
    app.slider(key="work_shown").set_value(2).run()
    shown = text_of(app)
    assert "For 2 tokens after a prompt of 5, no cache means **11 token rows, 5 of them computed again**" in shown
    app.slider(key="work_shown").set_value(1).run()
    assert "Nothing has been computed twice yet" in text_of(app)


def test_counts_of_another_prompt_are_not_shown(opened, results):
    own = make_run(P=4, N=6, name="story-gpt2")
    still = {n: Still(s) for n, s in results.items()}
    app = opened("problem", state={"kv_jobs": still, "kv_opened": own})
    assert "For 6 tokens after a prompt of 4" in text_of(app) and "290" not in text_of(app)
    app = opened("permission", state={"kv_jobs": still, "kv_opened": own})
    assert lessons.text("en", "permission", "answer_waiting") in text_of(app)


def test_an_edit_in_a_link_is_what_is_asked_for(opened, monkeypatch):
    still = Still(State())
    model = SimpleNamespace(facts=storage.bundled().model, encode=lambda text: [0])
    monkeypatch.setattr(experiment.warm, "loaded", lambda *_: model)
    query = {"edit": "8", "edit_to": " <b>x</b>", "edit_how": "insert", "causal": "off"}
    app = opened("permission", state={"kv_jobs": {"permission": still}}, **query)
    assert not app.exception and not app.error
    assert still.asked[0] == EditWish(*MODEL, PROMPT, 8, " <b>x</b>", "insert")
    (link,) = [c.value for c in app.code if "?" in c.value and "lang=" in c.value]
    assert "edit=8&edit_to=%20%3Cb%3Ex%3C%2Fb%3E&edit_how=insert&causal=off" in link
    assert "<b>" not in outside_code(text_of(app))


def test_nothing_starts_before_the_model_is_there(opened):
    still = Still(State())
    app = opened("permission", state={"kv_jobs": {"permission": still}})
    assert still.asked == []
    assert "The experiment begins by itself." in text_of(app)
    assert "Dorothy" not in outside_code(text_of(app)).replace(PROMPT, "")  # tokens stand as code


def test_with_the_mask_off_the_other_map_is_shown(opened, results):
    app, _ = with_states(opened, "permission", results, causal="off")
    assert "Without the mask the edit reaches back" in text_of(app)
    app.button_group("causal").select("on").run()
    assert "all **36 cells of K and V before it are exactly 0**" in text_of(app)


def test_tries_put_the_page_in_their_state(opened, results):
    app, _ = with_states(opened, "permission", results)
    app.button(key="try-permission-last").click().run()
    assert app.number_input(key="edit").value == 8
    app.button(key="try-permission-open").click().run()
    assert app.number_input(key="edit").value is None
    assert app.session_state.causal == "off"


@pytest.mark.parametrize("language", lessons.LANGUAGES)
@pytest.mark.parametrize("kind", ["twice", "stale", "narrow", "shifted", "restart"])
def test_each_fault_says_what_was_fed_and_how_wrong_it_is(opened, results, kind, language):
    app, _ = with_states(opened, "permission", results, lang=language, broken=kind)
    check(app, "permission", language, (f"**{lessons.text(language, 'permission', f'broken_{kind}')}**",), 2)
    table = app.dataframe[-1].value
    assert len(table) == 6
    assert app.main.text[1].value.startswith("·")  # what is right, literally


def test_a_refusal_is_a_sentence_and_what_was_found_stays(opened, results):
    refusal = Refusal("no_such_position", position=99, last=8)
    declined = dataclasses.replace(results["permission"], wish=dataclasses.replace(EDIT, position=99), refusal=refusal)
    app, _ = with_states(opened, "permission", results | {"permission": declined})
    assert any("no position 99" in w.value for w in app.warning)
    assert "36 cells" in text_of(app)
    broke = dataclasses.replace(results["permission"], failed=True)
    app, _ = with_states(opened, "permission", results | {"permission": broke})
    assert [e.value for e in app.error] == [lessons.text("en", "shell", "experiment_failed")]


def test_a_run_whose_model_is_not_here_says_so(opened):
    for name in ("problem", "permission"):
        app = opened(name, state={"kv_opened": make_run(name="no-such-model", N=3)})
        assert not app.exception and not app.error
        assert "no-such-model" in text_of(app)
    assert "For 3 tokens" in text_of(opened("problem", state={"kv_opened": make_run(name="no-such-model", N=3)}))


@pytest.mark.parametrize("case", ["one", "shared", "alone", "window", "markup"])
@pytest.mark.parametrize("name", ["problem", "permission"])
def test_runs_of_other_sizes_are_shown(opened, name, case):
    app = opened(name, state={"kv_opened": make_run(**PLAYER_CASES[case])})
    assert not app.exception
    assert [e.value for e in app.error] == []
    interpreted = outside_code(text_of(app))
    for markup in ("<b>", "<script>", "$x$", ":smile:", "[z](w)", "*y*", "<i>"):
        assert markup not in interpreted


def test_a_part_that_breaks_says_so_and_the_rest_stays(opened, results, monkeypatch, caplog):
    monkeypatch.setattr(charts, "chart", lambda *_, **__: 1 / 0)
    app, _ = with_states(opened, "permission", results)
    assert not app.exception
    assert lessons.text("en", "shell", "broken") in [e.value for e in app.error]
    assert "ZeroDivisionError" in caplog.text
    assert re.search(r"Questions people ask here", text_of(app))
