"""The player: what it is sent (`message`, no Streamlit), and the component that shows it (`component`)."""
