"""Every chart on one page, on a run made by hand: what the browser tests of the charts open. `?tokens=` names one."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parents[2])]

import streamlit as st
from factories import make_run

from kvviz.figures.plots import PLOTS
from kvviz.ui import charts

MARKUP = "<b>bold</b><script>alert(1)</script>|$x$ and *y* :smile: [z](w)|&amp;|&lt;|#0072b2|%{x}|<br>| who|\n\n"
PROMPTS = {
    "plain": [b"Once", b" upon", b" a", b" time", b" there"],
    "repeated": [b"the", b" the", b" the", b" the"],
    "markup": [t.encode() for t in MARKUP.split("|")],
    "long": [f" w{i % 9}".encode() for i in range(64)],
}
st.set_page_config(layout="wide")
prompt = PROMPTS[st.query_params.get("tokens", "plain")]
new = int(st.query_params.get("new", 20))
names = st.query_params.get("figure", ",".join(PLOTS)).split(",")
run = make_run(3, 4, head_dim=8, prompt=prompt, chosen=[prompt[i % len(prompt)] for i in range(new)], N=new)
step = st.session_state.setdefault("step", min(int(st.query_params.get("step", 3)), new - 1))
if st.button("Next") and step < new - 1:
    step = st.session_state.step = step + 1
st.text(f"step {step}")
for i, name in enumerate(names):
    charts.draw(name, run, key=f"{i}-{name}", step=step, layer=1, head=2)
