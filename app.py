"""kvviz in the browser: `streamlit run app.py`, or `streamlit run app.py -- --model FOLDER`."""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvviz import features
from kvviz.ui import shell, startup
from kvviz.ui.icon import TAB_ICON

if get_script_run_ctx(suppress_warning=True) is None:  # the server starts
    app = st.App(__file__, lifespan=startup.ready)
else:
    st.set_page_config(page_title="kvviz", page_icon=TAB_ICON, layout="wide")
    shell.run(shell.navigation(features.pages()))
