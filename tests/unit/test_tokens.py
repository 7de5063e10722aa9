"""How tokens are written, on GPT-2's real vocabulary. Ids are OpenAI's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvviz.core.tokens import character_groups, label, labels
from kvviz.models.catalog import BUILTIN
from kvviz.models.vocabulary import Vocabulary

TOKENIZER = Path(__file__).parent.parent / "data" / "gpt2-tokenizer"

CASES = {  # prompt: (ids, labels)
    "The capital of France is": ([464, 3139, 286, 4881, 318], ["The", "·capital", "·of", "·France", "·is"]),
    "the the the the": ([1169, 262, 262, 262], ["the", "·the", "·the", "·the"]),
    "a\nb\n\nc": ([64, 198, 65, 198, 198, 66], ["a", "⏎", "b", "⏎", "⏎", "c"]),
    "hello world": ([31373, 995], ["hello", "·world"]),
    "🤗": ([8582, 97, 245], ["F0 9F", "A4₁₆", "97₁₆"]),
    "🙂": ([8582, 25081], ["F0 9F", "99 82"]),
    "café": ([66, 1878, 2634], ["c", "af", "é"]),
    "Seán Murray": ([4653, 21162, 12164], ["Se", "án", "·Murray"]),
    "hello": ([31373], ["hello"]),
    "hello ": ([31373, 220], ["hello", "·"]),
    "  two  spaces": ([220, 734, 220, 9029], ["·", "·two", "·", "·spaces"]),
    "\t\tx": ([197, 197, 87], ["⇥", "⇥", "x"]),
    " ": ([220], ["·"]),
    "\n": ([198], ["⏎"]),
    "": ([], []),
}


@pytest.fixture(scope="module")
def gpt2() -> Vocabulary:
    return Vocabulary(TOKENIZER)


@pytest.mark.parametrize("text", CASES, ids=repr)
def test_ids_and_labels(gpt2, text):
    """B02, B03, B05 and B12: white space by visible signs, parts of a character by their bytes."""
    ids, written = CASES[text]
    assert gpt2.encode(text) == ids
    assert labels(gpt2.piece(i) for i in ids) == written


def test_chinese_is_eleven_tokens_over_five_characters(gpt2):
    """B05"""
    ids = gpt2.encode("你好，世界")
    assert ids == [19526, 254, 25001, 121, 171, 120, 234, 10310, 244, 45911, 234]
    groups = character_groups([gpt2.piece(i) for i in ids])
    assert groups == [(0, 2, "你"), (2, 4, "好"), (4, 7, "，"), (7, 9, "世"), (9, 11, "界")]


def test_markup_is_fifteen_literal_tokens(gpt2):
    text = "<b>bold</b><script>alert(1)</script>"
    ids = gpt2.encode(text)
    assert len(ids) == 15
    assert "".join(labels(gpt2.piece(i) for i in ids)) == text


def test_markdown_and_latex_are_sixteen_literal_tokens(gpt2):
    text = "$x$ and *y* :smile: [z](w)"
    ids = gpt2.encode(text)
    assert len(ids) == 16
    assert "".join(labels(gpt2.piece(i) for i in ids)) == text.replace(" ", "·")


def test_what_looks_like_a_special_token_is_text(gpt2):
    ids = gpt2.encode("Hello<|endoftext|>world")
    assert ids[0] == gpt2.encode("Hello")[0]
    assert ids[1:3] == [27, 91]
    assert 50256 not in ids
    assert b"".join(gpt2.piece(i) for i in ids) == b"Hello<|endoftext|>world"


def test_literal_special_tokens_agree_with_transformers():
    """The built-in vocabulary knows <|endoftext|> as an added token: the harder case."""
    from transformers import AutoTokenizer

    text = "Hello<|endoftext|>world"
    other = AutoTokenizer.from_pretrained(BUILTIN / "story-gpt2", local_files_only=True)
    literal = other(text, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    mine = Vocabulary(BUILTIN / "story-gpt2")
    assert mine.encode(text) == literal
    assert 4095 in other(text)["input_ids"]  # which is what it would be by default
    assert 4095 not in literal
    assert mine.piece(4095) == b"<|endoftext|>"


@pytest.mark.parametrize("folder", [TOKENIZER, BUILTIN / "story-gpt2", BUILTIN / "story-llama"], ids=lambda f: f.name)
def test_no_two_tokens_of_a_vocabulary_share_a_label(folder):
    vocabulary = Vocabulary(folder)
    written = labels(vocabulary.piece(i) for i in range(vocabulary.size))
    assert len(written) == {"gpt2-tokenizer": 50257}.get(folder.name, 4096)
    assert len(set(written)) == len(written)
    assert not any(c in "".join(written) for c in "\n\t\r\u00a0\u200b\ufffd")


@pytest.mark.parametrize("folder", [TOKENIZER, BUILTIN / "story-gpt2"], ids=lambda f: f.name)
@pytest.mark.parametrize("text", ["naïve — “quote” \r\n\t\x00\x7f", "你好，世界 🤗🏳️‍🌈", "ℵ·⏎ F0 9F 97"], ids=ascii)
def test_pieces_join_to_the_bytes_of_the_text(folder, text):
    vocabulary = Vocabulary(folder)
    assert b"".join(vocabulary.piece(i) for i in vocabulary.encode(text)) == text.encode()


def test_all_pieces_of_gpt2_are_the_bytes_transformers_decodes(gpt2):
    """Against transformers' own decoder, for every token that is whole characters."""
    from transformers import GPT2TokenizerFast

    other = GPT2TokenizerFast(vocab=str(TOKENIZER / "vocab.json"), merges=str(TOKENIZER / "merges.txt"))
    for i in range(50257):
        piece = gpt2.piece(i)
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            continue
        assert other.decode([i], clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize(
    ("piece", "written"),
    [
        (b"97", "97"),
        (b"\x97", "97₁₆"),
        ("97₁₆".encode(), "97⟨₁⟩₆"),
        (b"F0 9F", "F0·9F"),
        ("·".encode(), "⟨·⟩"),
        ("⏎".encode(), "⟨⏎⟩"),
        ("⟨U+200B⟩".encode(), "⟨⟨⟩U+200B⟨⟩⟩"),
        ("\u200b".encode(), "⟨U+200B⟩"),
        ("\ufffd".encode(), "⟨U+FFFD⟩"),
        ("\ufe0f".encode(), "⟨U+FE0F⟩"),
        ("\u0301".encode(), "◌\u0301"),
        (" é".encode(), "·é"),
        (b" \xf0\x9f", "20 F0 9F"),
        (b"", "∅"),
        ("∅".encode(), "⟨∅⟩"),
        (b"<script>", "<script>"),
        (b"$x$", "$x$"),
    ],
    ids=repr,
)
def test_label(piece, written):
    assert label(piece) == written


def test_groups_of_bytes_that_never_become_a_character():
    assert character_groups([b"a", b"\xf0\x9f", b"b"]) == [(0, 1, "a"), (1, 2, "F0 9F"), (2, 3, "b")]
    assert character_groups([b"\x97", b"\xc3", b"\xa9"]) == [(0, 1, "97₁₆"), (1, 3, "é")]
    assert character_groups([b"x", b"\xf0\x9f"]) == [(0, 1, "x"), (1, 2, "F0 9F")]
    assert character_groups([]) == []


def test_groups_join_a_token_that_ends_one_character_and_begins_the_next():
    assert character_groups([b"\xc3", b"\xa9\xc3", b"\xa8"]) == [(0, 3, "éè")]


def test_half_a_surrogate_is_refused(gpt2):
    from kvviz.core.refusal import Refusal

    with pytest.raises(Refusal, match="half of a character") as refusal:
        gpt2.encode("a\ud800b")
    assert refusal.value.code == "bad_text"


def test_sentencepiece_style_tokens():
    """Llama-2's spelling: a lower one-eighth block for a space, <0xE4> for a byte."""
    from tokenizers import Tokenizer, models

    vocabulary = Vocabulary(BUILTIN / "story-gpt2")
    vocabulary._tokenizer = Tokenizer(models.WordLevel({"▁who": 0, "<0xE4>": 1, "who": 2}, unk_token="who"))
    vocabulary._byte_level, vocabulary._added = False, {}
    assert [vocabulary.piece(i) for i in range(3)] == [b" who", b"\xe4", b"who"]
    assert vocabulary.piece(7) == b"<7>"


def test_an_opening_token_of_the_model_is_kept(tmp_path):
    """Llama-like vocabularies put one in front; the text itself stays literal."""
    import json

    parts = json.loads((BUILTIN / "story-llama" / "tokenizer.json").read_text())
    parts["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [4095], "tokens": ["<|endoftext|>"]}},
    }
    parts["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    plain, opening = Vocabulary(BUILTIN / "story-llama"), Vocabulary(tmp_path)
    text = "Hello<|endoftext|>world, once upon a time"
    assert opening.encode(text) == [4095, *plain.encode(text)]  # and not cut to three


def test_sixteen_threads_share_a_vocabulary(gpt2):
    from concurrent.futures import ThreadPoolExecutor

    wanted = [19526, 254, 25001, 121, 171, 120, 234, 10310, 244, 45911, 234]
    with ThreadPoolExecutor(16) as pool:
        assert all(ids == wanted for ids in pool.map(gpt2.encode, ["你好，世界"] * 4000))
