"""The serving engine's budget on Memory: whose numbers it takes, what it refuses, and what its examples leave alone."""

from __future__ import annotations

import json

import pytest
from reading import text_of

from kvviz.core import lessons
from tests.unit.test_architectures import LLAMA_3_8B

pytestmark = pytest.mark.usefixtures("no_models")

SIZES = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "intermediate_size",
    "vocab_size",
)
UNNAMED = {key: LLAMA_3_8B[key] for key in SIZES}  # a config that names no family


def pasted(opened, **changed):
    app = opened("memory", memory_model="config")
    app.text_area(key="memory_config").set_value(json.dumps(UNNAMED | changed)).run()
    assert not app.exception and [e.value for e in app.error] == []
    return app


def test_a_config_with_all_sizes_has_its_weights_worked_out(opened):
    """Llama-3-8B's 8,030,261,248 parameters in 16 bits are 14.957 GiB: as with the preset, 28,284 blocks."""
    shown = text_of(pasted(opened))
    assert "8,030,261,248 parameters, computed from the config" in shown
    assert "less 14.96 weights" in shown and "28,284 blocks" in shown
    assert "is only an example" not in shown


def test_weights_that_are_not_known_are_said_to_be_an_example(opened):
    app = pasted(opened, vocab_size=None)
    shown = text_of(app)
    assert "is not known here" in shown
    assert '14.00 GiB is only an example. Put the real size into the field "Weights, GiB"' in shown
    app.number_input(key="memory_resident").set_value(20.0).run()
    shown = text_of(app)
    assert "is only an example" not in shown
    assert 'The 20.00 GiB of weights are what stands in the field "Weights, GiB"' in shown


def test_weights_that_are_entered_are_said_to_be(opened):
    """After "Nothing left" 14 GiB stand there; Llama-3-8B has 14.96."""
    app = opened("memory")
    assert "what stands in the field" not in text_of(app)
    app.button(key="try-memory-nothing").click().run()
    assert "By the precision and the number of GPUs above, ` Llama-3-8B ` has 14.96 GiB a GPU" in text_of(app)
    app.button(key="try-memory-log").click().run()
    assert "the peak of 17.06 GiB is taken to hold the weights too" in text_of(app)


@pytest.mark.parametrize("language", lessons.LANGUAGES)
def test_a_gpu_without_memory_is_refused(opened, language):
    app = opened("memory", lang=language, memory_total="0.0")
    assert not app.exception and [e.value for e in app.error] == []
    (said,) = [w.value for w in app.warning]
    assert "0.01" in said and "100,000" in said
    assert "28,284" not in text_of(app)


@pytest.mark.parametrize("name", ["log", "long", "nothing"])
def test_an_example_of_the_budget_leaves_the_rest_of_the_page(opened, name):
    fields = {"memory_T": "4096", "memory_B": "3", "memory_gpus": "2", "memory_by": "batch", "memory_gpu": "t4"}
    app = opened("memory", memory_model="gpt2", **fields)
    app.button(key=f"try-memory-{name}").click().run()
    held = {field: str(app.session_state[field]) for field in fields}
    assert held == fields
    assert app.session_state["memory_model"] == "llama-3-8b"  # the case is Llama-3-8B's


def test_an_example_of_a_model_sets_what_its_sentence_is_about(opened):
    """512 MiB are those of one text in 16 bits."""
    app = opened("memory", memory_B="3", memory_kv="fp32", memory_gpu="t4")
    app.button(key="try-memory-window").click().run()
    assert "**512 MiB**" in text_of(app) and app.session_state["memory_gpu"] == "t4"


def test_one_position_is_one(opened):
    from factories import make_run

    shown = text_of(opened("memory", state={"kv_opened": make_run(P=1, N=1)}, memory_model="run"))
    assert "1 position: **" in shown and "1 positions" not in shown and "1 rows" not in shown
