"""kvviz in the browser: `streamlit run app.py`, or `streamlit run app.py -- --model FOLDER`."""

import streamlit as st

from kvviz.ui import shell
from kvviz.ui.icon import TAB_ICON

st.set_page_config(page_title="kvviz", page_icon=TAB_ICON, layout="wide")
shell.run(shell.navigation())
