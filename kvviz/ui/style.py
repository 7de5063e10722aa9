"""The app's own style sheet, beyond .streamlit/config.toml; what belongs to a component stands with it."""

from __future__ import annotations

import streamlit as st

# Constant: the larger type of a lecture hall; and less air around the page, so that the player fits beside it.
PRESENTER = (
    "<style>html{font-size:20px}.stAppHeader{height:2.6rem;min-height:2.6rem}"
    ".stMainBlockContainer{padding-top:2.7rem}.stMain .stVerticalBlock{gap:.5rem}</style>"
)

# Less air between the controls, so that all of them fit 900 pixels, also while the model comes.
SIDEBAR = "<style>[data-testid=stSidebarContent] .stVerticalBlock{gap:.55rem}</style>"

# In a narrow window columns go below one another before a control is cut or a picture is too small to read.
NARROW = (
    "<style>.stMain [data-testid=stHorizontalBlock]:has(>[data-testid=stColumn]){flex-wrap:wrap}"
    ".stMain [data-testid=stColumn]{min-width:min(100%,132px)}"
    ".stMain [data-testid=stColumn]"
    ":has(.st-key-attention_rows,.st-key-edit_how,.st-key-problem_start,.st-key-roofline_dtype)"
    "{min-width:min(100%,11.4rem)}"
    ".stMain [data-testid=stColumn]:has(.st-key-roofline_B){min-width:min(100%,18.8rem)}"
    ".stMain [data-testid=stColumn]:has(.st-key-roofline_start):has(.st-key-roofline_stop){min-width:min(100%,17rem)}"
    ".stMain [data-testid=stColumn]:has([data-testid=kv-chart],canvas){min-width:min(100%,400px)}</style>"
)

# As high as the fields beside them, so that labels in one line stand at one height.
CHOICES = (
    "<style>:is(.st-key-attention_rows,.st-key-edit_how,.st-key-causal,.st-key-roofline_dtype,.st-key-roofline_B) "
    "button{min-height:2.5rem}</style>"
)

# Text as it is, in a fixed-width face: the running text, a pass in a few lines, a formula.
RUNNING = (
    "<style>:is(.st-key-running_text,.st-key-code,.st-key-formula) [data-testid=stText]"
    "{white-space:pre-wrap;overflow-wrap:anywhere;padding:.7rem 1rem;"
    "border-radius:8px;background:rgba(127,127,127,.1);"
    "font:.875rem/1.6 'Source Code Pro','PingFang SC','Microsoft YaHei','Noto Sans CJK SC',monospace}"
    ":is(.st-key-running_text,.st-key-code,.st-key-formula) [data-testid=stText] *"
    "{font:inherit;white-space:inherit}</style>"
)

# Answer line, proof strip and cards of numbers.
LOOK = (
    "<style>"
    "[class*=st-key-answer-] p{font-size:1.1rem;margin:0}"
    "[class*=st-key-proofs-]{border-top:1px solid rgba(127,127,127,.3);padding-top:.45rem;min-height:3.4rem;"
    "row-gap:.1rem!important;column-gap:1.1rem!important;align-content:flex-start}"
    "[class*=st-key-proofs-] p{font-size:.82rem;margin:0;font-variant-numeric:tabular-nums}"
    ":is([class*=st-key-proofs-],[class*=st-key-facts-],[class*=st-key-answer-]) "
    "[data-testid=stMarkdownContainer]{margin-bottom:0!important}"
    "[class*=st-key-proof-holds-] strong{color:light-dark(#007a59,#2bc79c)}"
    "[class*=st-key-proof-rounding-] strong{color:light-dark(#8a5f00,#f0b42a)}"
    "[class*=st-key-proof-fails-] strong{color:light-dark(#b84e00,#ff8a5c)}"
    "[class*=st-key-facts-]{background:rgba(127,127,127,.08);border-radius:8px;padding:.5rem .6rem;gap:.1rem}"
    "[class*=st-key-facts-] p{font-size:.86rem;margin:0}"
    "[class*=st-key-facts-] table{font-size:.82rem;font-variant-numeric:tabular-nums;width:100%}"
    "[class*=st-key-facts-] td:not(:first-child){white-space:nowrap}"
    "[class*=st-key-facts-] :is(td,th){padding:.12rem .22rem!important;border-color:rgba(127,127,127,.25)!important}"
    "[class*=st-key-facts-] code{font-size:.86rem;background:none;padding:0;color:inherit}"
    "</style>"
)


def style(*, presenter: bool) -> None:
    """To be called by the page, never by a fragment: style sheets share one list, and one that a fragment takes back
    would move those after it (see `fragment`)."""
    st.html(SIDEBAR)
    st.html(NARROW)
    st.html(CHOICES)
    st.html(RUNNING)
    st.html(LOOK)
    if presenter:
        st.html(PRESENTER)
