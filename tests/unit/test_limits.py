"""What is refused before the model is called, and in which words."""

from __future__ import annotations

import pytest

from kvviz.core import lessons
from kvviz.core.refusal import Refusal
from kvviz.engine import Session, check_prompt, limits


def prompt_of(model, n: int) -> str:
    """A text of exactly n tokens."""
    text = " the" * n
    assert len(model.encode(text)) == n
    return text


def refused(code: str, call, *args, **kwargs) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code
    return caught.value


def test_empty_prompt(story):
    """B13: refused with a sentence, not a reshape error."""
    refusal = refused("empty_prompt", Session, story, "")
    assert "Type at least one character" in str(refusal)


def test_a_thousand_tokens_leave_room_for_twenty_five(story_gpt2):
    """A14: 1000 + 25 - 1 = 1024 positions."""
    text = prompt_of(story_gpt2, 1000)
    assert len(check_prompt(story_gpt2, text, 25)) == 1000
    refusal = refused("too_many_new", check_prompt, story_gpt2, text, 50)
    assert refusal.values == {"model": "story-gpt2", "P": 1000, "new": 50, "room": 25, "limit": 1024}
    assert "1,024 positions" in str(refusal)
    assert "New tokens that fit: 25, not 50" in str(refusal)
    session = Session(story_gpt2, text, compare=False)
    assert session.room == 25
    run = session.advance(50)
    assert len(run.new_ids) == 25
    assert run.length == 1024
    assert session.room == 0
    refusal = refused("limit_reached", session.decode_one_token)
    assert refusal.values == {"model": "story-gpt2", "length": 1024, "limit": 1024}
    assert run is session.run  # nothing happened to it


def test_the_last_position(story_gpt2):
    """A14: a prompt of exactly 1,024 gives one token; one of 1,025 is refused before any model call."""
    text = prompt_of(story_gpt2, 1024)
    session = Session(story_gpt2, text, compare=False, capture=False)
    assert session.room == 1
    assert session.prefill().length_after == 1024
    refused("limit_reached", session.decode_one_token)
    refusal = refused("too_long", Session, story_gpt2, prompt_of(story_gpt2, 1025))
    assert refusal.values == {"model": "story-gpt2", "P": 1025, "limit": 1024}


def test_rotary_models_stop_where_kvviz_says(story_llama):
    assert story_llama.facts.trained_positions == 256
    assert story_llama.facts.max_positions == 1024
    refusal = refused("too_long_rotary", Session, story_llama, prompt_of(story_llama, 1025))
    assert "rotary positions have no last one" in str(refusal)
    refusal = refused("too_many_new_rotary", check_prompt, story_llama, prompt_of(story_llama, 1000), 26)
    assert refusal.values["room"] == 25


def test_past_the_trained_length_a_rotary_model_goes_on(story_llama):
    run = Session(story_llama, prompt_of(story_llama, 255), compare=False).advance(4)
    assert run.length == 258


def test_a_book_is_refused_without_reading_it(story_gpt2, monkeypatch):
    monkeypatch.setattr(story_gpt2.vocabulary, "encode", lambda text: pytest.fail("tokenised"))
    refusal = refused("too_long", check_prompt, story_gpt2, "a" * 10_000_000)
    assert refusal.values["P"] > 1024


def test_ids_in_range(story_gpt2, random_small):
    limits.check_ids(story_gpt2.facts, [0, 4095])
    for bad in (-1, 4096):
        refusal = refused("id_out_of_range", limits.check_ids, story_gpt2.facts, [5, bad])
        assert refusal.values == {"id": bad, "vocab": 4096}


def test_passes_follow_one_another(story_gpt2):
    with pytest.raises(ValueError, match="position 5 does not follow 6"):
        limits.check_pass(story_gpt2.facts, [1], 5, 6)
    limits.check_pass(story_gpt2.facts, [1], 1023, 1023)
    refused("limit_reached", limits.check_pass, story_gpt2.facts, [1], 1024, 1024)
    refused("limit_reached", limits.check_pass, story_gpt2.facts, [1] * 5, 1020, 1020)


def test_bytes_of_a_record(story):
    run = Session(story, "Dorothy and the Tin Woodman", compare=False).advance(3)
    for step in run.steps:
        arrays = (step.attention, step.q, step.k, step.v)
        assert limits.record_bytes(story.facts, step.rows, step.length_after) == sum(a.nbytes for a in arrays)
    # story-gpt2, one row at T = 10: 6·8·10 weights, 6·8·32 of q, 2·6·8·32 of K and V, two bytes each
    if story.facts.name == "story-gpt2":
        assert limits.record_bytes(story.facts, 1, 10) == 2 * (480 + 1536 + 3072)


def test_a_run_fits_into_its_bytes(story_gpt2):
    session = Session(story_gpt2, "Once upon a time,", keep_bytes=150_000)
    room = session.room
    assert 5 < room < 30
    run = session.advance(1000)
    assert len(run.steps) == room
    arrays = [a for s in run.steps for a in (s.attention, s.q, s.k, s.v)]
    one_more = limits.record_bytes(story_gpt2.facts, 1, run.length + 1)
    assert 150_000 - one_more < sum(a.nbytes for a in arrays) <= 150_000
    assert session.room == 0
    refusal = refused("run_full", session.decode_one_token)
    assert refusal.values["limit"] == 150_000
    assert len(session.run.steps) == room


def test_room_counts_down_by_one(story_llama):
    session, rooms = Session(story_llama, "Once upon a time", compare=False, keep_bytes=60_000), []
    while session.room:
        rooms.append(session.room)
        session.advance(len(session.run.steps) + 1)
    assert rooms == list(range(rooms[0], 0, -1))
    assert len(rooms) > 3


def test_a_prompt_whose_picture_is_too_big(story_gpt2):
    refusal = refused("prompt_too_big", Session, story_gpt2, prompt_of(story_gpt2, 200), keep_bytes=1_000_000)
    assert refusal.values["bytes"] == 2 * 6 * (8 * 200 * (200 + 32) + 2 * 8 * 200 * 32)
    assert Session(story_gpt2, prompt_of(story_gpt2, 200), keep_bytes=1_000_000, capture=False).room == 825


def test_every_run_of_gpt2_small_can_be_kept(random_small):
    """A full context with the largest possible prompt: 144 heads of 1,024 × 1,024 weights."""
    assert limits.record_bytes(random_small.facts, 1024, 1024) <= limits.KEEP_BYTES


def codes() -> list[str]:
    return list(lessons.sections("en", "refusals"))


def test_both_languages_say_the_same_codes_with_the_same_values():
    import re

    en, zh = (lessons.sections(language, "refusals") for language in ("en", "zh"))
    assert en.keys() == zh.keys()
    for code in en:
        assert set(re.findall(r"\{(\w+)\}", en[code])) >= set(re.findall(r"\{(\w+)\}", zh[code])), code


def test_every_code_raised_has_its_words(root):
    import re

    raised = set()
    for file in (root / "kvviz").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        raised |= set(re.findall(r"\bRefusal\(\s*\"(\w+)\"", text))
        for base in re.findall(r"_code\(\"(\w+)\"", text):
            raised |= {base, f"{base}_rotary"}
    raised |= {"folder_pickled", "folder_no_weights"}
    assert "too_long" in raised
    assert raised <= set(codes())


def test_a_refusal_reads_as_its_sentence():
    refusal = Refusal("too_long", model="gpt2", P=1025, limit=1024)
    assert str(refusal).startswith("gpt2 has learned 1,024 positions")
    assert "1,025" in str(refusal)
    assert refusal.shown(lambda s: f"<{s}>") == {"model": "<gpt2>", "P": "1,025", "limit": "1,024"}
    assert isinstance(refusal, ValueError)
