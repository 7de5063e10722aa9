"""Formulas, as pure functions of plain numbers. No torch, no NumPy needed, no Streamlit."""
