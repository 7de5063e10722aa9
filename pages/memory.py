"""What the cache takes: the formula with this run's numbers, and the same for other models, GPUs and engines."""

import dataclasses

import streamlit as st

from kvviz.features.memory import parts as memory_page
from kvviz.features.memory.record.sizes import of_run
from kvviz.features.memory.spec import SPEC
from kvviz.ui import browser, kit, state
from kvviz.ui.language import t

NAME = "memory"


def part(name: str) -> None:
    st.subheader(t(NAME, f"{name}_heading"), anchor=False)
    st.markdown(t(NAME, f"{name}_says"))


kit.heading(SPEC)
run = state.current_run()
held = of_run(run)
values = memory_page.values_of(held)
memory_page.hero(held)
acts = {
    "llama": lambda: memory_page.take(memory_B=1, memory_T=8_192),
    "window": lambda: memory_page.take(memory_model="mistral-7b", memory_B=1, memory_T=32_768),
    "mla": lambda: memory_page.take(memory_model="deepseek-v3", memory_B=1, memory_T=32_768),
}
kit.tries(SPEC, acts)
kit.proofs(NAME, held.checks, **values)
kit.read(NAME, **values)
part("model")
wanted = memory_page.asked(run)
memory_page.growth(wanted)
part("kinds")
memory_page.kinds(wanted)
part("carried")
memory_page.carried(dataclasses.replace(wanted, positions=run.length, batch=1))
part("fits")
wanted, gpu = memory_page.configured(wanted)
memory_page.fits(wanted, gpu)
part("engine")
memory_page.cases()
memory_page.engine(wanted, gpu)
kit.code(NAME, **values)
kit.questions(SPEC, **values)
kit.onward(SPEC)
browser.show_own(SPEC)
