"""The browser tab's picture: two columns of a cache, K above V, the newer one in full colour. Drawn here because
Streamlit fetches its named icons from elsewhere."""

TAB_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<g opacity=".45"><path fill="#E69F00" d="M3 3h11v13H3z"/><path fill="#009E73" d="M3 16h11v13H3z"/></g>
<path fill="#E69F00" d="M18 3h11v13H18z"/><path fill="#009E73" d="M18 16h11v13H18z"/></svg>"""
