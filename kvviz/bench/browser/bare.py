"""The least page that Streamlit can show: what kvviz's opening is compared with."""

import streamlit as st

st.title("Bare")
