"""Links: what is read from one, what is refused, and that a link written here is read here."""

from __future__ import annotations

import pytest

from kvviz.features.ladder.spec import LANES
from kvviz.features.ladder.spec import SPEC as ladder
from kvviz.features.permission.spec import SPEC as permission
from kvviz.features.race.spec import SPEC as race
from kvviz.features.roofline.spec import SPEC as roofline
from kvviz.models.device import DTYPES
from kvviz.ui import links
from kvviz.ui.links import Place


def test_place_is_read_from_plain_numbers():
    place, notes = links.read_place(links.query("step=12&layer=7&head=3&prompt=abc"))
    assert place == Place(12, 7, 3)
    assert notes == []


@pytest.mark.parametrize(
    "value",
    ["x", "", "-1", "1.5", "1e3", " 7", "7 ", "１２", "٣", "0x10", "1_0", "+3", "9" * 11, "NaN", "<b>7</b>", "7;8"],
)
def test_a_place_that_is_no_whole_number_is_left_out_with_a_note(value):
    place, notes = links.read_place({"layer": value, "step": "3"})
    assert place == Place(step=3)
    assert [(n.section, n.values) for n in notes] == [("note_unreadable", {"name": "layer", "value": value})]


def test_of_a_name_given_twice_the_last_value_counts():
    assert links.query("?step=1&step=2&empty=") == {"step": "2", "empty": ""}


def test_a_query_with_very_many_fields_says_nothing():
    assert links.query("&".join(f"a{i}=1" for i in range(200))) == {}


def test_clamping_names_what_was_asked_and_what_is_there():
    place, notes = links.clamp(Place(999, 17, 11), steps=20, layers=6, heads=8)
    assert place == Place(19, 5, 7)
    assert [(n.section, n.values["asked"], n.values["last"]) for n in notes] == [
        ("note_step", "999", "19"),
        ("note_layer", "17", "5"),
        ("note_head", "11", "7"),
    ]


def test_clamping_says_nothing_about_what_fits_or_was_not_asked():
    assert links.clamp(Place(step=3), steps=4, layers=1, heads=1) == (Place(step=3), [])


def test_a_run_of_one_pass_has_one_place():
    assert links.clamp(Place(5, 5, 5), steps=1, layers=1, heads=1)[0] == Place(0, 0, 0)


@pytest.mark.parametrize(
    ("step", "new", "tokens"),
    [(None, 16, 16), (3, 16, 16), (15, 16, 16), (16, 16, 17), (40, 16, 41), (255, 16, 256), (999, 16, 16)],
)
def test_a_link_runs_as_far_as_its_step_unless_that_is_far(step, new, tokens):
    assert links.tokens_for(Place(step=step), new) == tokens


@pytest.mark.parametrize("model", ["/etc", "../story-gpt2", "C:\\models", "gpt5", "", "story-gpt2/", "<b>"])
def test_a_model_that_is_not_in_the_list_is_refused(model):
    notes = links.check_settings({"model": model}, ["story-gpt2", "gpt2"])
    assert [(n.section, n.values["value"]) for n in notes] == [("note_model", model)]


def test_settings_in_range_pass_without_a_note():
    good = {"model": "gpt2", "temperature": "0.7", "top_k": "20", "top_p": "0.9", "seed": "0", "new": "1024"}
    assert links.check_settings(good, ["gpt2"]) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("temperature", "-0.1"),
        ("temperature", "2.01"),
        ("temperature", "hot"),
        ("top_p", "0"),
        ("top_k", "2.5"),
        ("seed", "-1"),
        ("seed", str(2**31)),
        ("new", "0"),
        ("new", "1025"),
    ],
)
def test_settings_out_of_range_are_named(name, value):
    (note,) = links.check_settings({name: value}, [])
    assert note.section == ("note_range" if name in ("temperature", "top_p") else "note_whole")
    assert (note.values["name"], note.values["value"]) == (name, value)


@pytest.mark.parametrize(
    ("name", "value", "noted"),
    [("compare", "TRUE", False), ("presenter", "1", True), ("compare", "", True), ("lang", "zh-TW", False)],
)
def test_choices_out_of_reach_are_named(name, value, noted):
    assert [n.section for n in links.check_settings({name: value}, [])] == ["note_choice"] * noted


def test_long_values_are_shortened_in_notes():
    (note,) = links.check_settings({"model": "x" * 5000}, [])
    assert note.values["value"] == "x" * 59 + "…"


@pytest.mark.parametrize(
    ("value", "code"),
    [("English", "en"), ("中文", "zh"), ("zh-CN", "zh"), ("EN", "en"), ("fr", None), ("", None), ("zhuang", None)],
)
def test_language_by_name_or_code(value, code):
    assert links.language({"lang": value}) == code


def test_what_is_written_is_read_again():
    prompt = "a\n b&c=d#e?f%20+ 你好 <b>$x$</b> "
    values = {"prompt": prompt, "model": "gpt2", "temperature": "0.7", "compare": False, "step": 3, "head": None}
    url = links.build("http://localhost:8501/decode?old=1#there", values)
    base, _, query = url.partition("?")
    assert base == "http://localhost:8501/decode"
    assert links.query(query) == {
        "prompt": prompt,
        "model": "gpt2",
        "temperature": "0.7",
        "compare": "false",
        "step": "3",
    }
    assert " " not in url and "\n" not in url


def test_what_is_a_page_s_own_is_read_as_far_as_it_can_be_used():
    asked = {
        "edit": "3",
        "edit_to": "<b>$x$",
        "edit_how": "insert",
        "causal": "maybe",
        "broken": "stale",
        "race_P": "5",
    }
    assert links.own(permission.fields, asked) == {
        "edit": 3,
        "edit_to": "<b>$x$",
        "edit_how": "insert",
        "broken": "stale",
    }
    assert links.own(race.fields, asked) == {"race_P": 5}
    assert links.own({}, asked) == {} and links.check_own({}, asked) == []
    (note,) = links.check_own(permission.fields, asked)
    assert (note.section, note.values) == (
        "note_own_choice",
        {"name": "causal", "value": "maybe", "choices": "on, off"},
    )


@pytest.mark.parametrize(("name", "value", "section"), [
    ("edit", "-1", "note_own_range"), ("edit", "1024", "note_own_range"), ("edit", "1.0", "note_own_range"),
    ("edit_to", "x" * 41, "note_own_long"), ("broken", "", "note_own_choice"), ("broken", "Twice", "note_own_choice"),
])  # fmt: skip
def test_what_cannot_be_used_is_said(name, value, section):
    assert links.own(permission.fields, {name: value}) == {}
    assert [n.section for n in links.check_own(permission.fields, {name: value})] == [section]


def test_the_precisions_of_a_link_are_those_there_are():
    assert roofline.fields["roofline_dtype"].words == tuple(DTYPES)


def test_the_faults_of_a_link_are_those_of_the_engine():
    from kvviz.features.permission.record.breaks import KINDS

    assert permission.fields["broken"].words == KINDS


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("none-sdpa", ["none-sdpa"]),
        ("preallocated-eager,none-sdpa", ["none-sdpa", "preallocated-eager"]),  # in the page's own order
        ("none-sdpa,none-sdpa", ["none-sdpa"]),
        ("", []),  # none of them is a choice too
    ],
)
def test_several_words_are_read(value, words):
    assert links.own(ladder.fields, {"ladder_lanes": value}) == {"ladder_lanes": words}
    assert links.check_own(ladder.fields, {"ladder_lanes": value}) == []


@pytest.mark.parametrize("value", ["none", "none-sdpa,", "none-sdpa, none-eager", "none-sdpa;none-eager", "NONE-SDPA",
                                   "none-sdpa,<b>$x$", "none-flash", " "])  # fmt: skip
def test_one_word_that_is_none_of_them_leaves_all_out_with_a_note(value):
    assert links.own(ladder.fields, {"ladder_lanes": value}) == {}
    (note,) = links.check_own(ladder.fields, {"ladder_lanes": value})
    assert (note.section, note.values["name"], note.values["value"]) == ("note_own_several", "ladder_lanes", value)
    assert note.values["choices"].split(", ") == list(LANES)


def test_several_words_are_written_and_read_again():
    for words in ([], ["none-sdpa"], ["none-eager", "preallocated-sdpa"]):
        url = links.build("http://localhost:8501/ladder", {"ladder_lanes": words, "ladder_N": 20})
        assert links.own(ladder.fields, links.query(url.partition("?")[2])) == {"ladder_lanes": words, "ladder_N": 20}


def test_the_lanes_of_a_link_are_those_of_the_record():
    assert LANES == ("none-eager", "none-sdpa", "concatenated-eager", "concatenated-sdpa",
                           "preallocated-eager", "preallocated-sdpa")  # fmt: skip
