"""The only code that runs models. Works in a script or a notebook, with no Streamlit installed.

>>> from kvviz.engine import Session, load
>>> session = Session(load("story-gpt2"), "Dorothy and the Tin Woodman")
>>> first = session.prefill()
>>> second = session.decode_one_token()
"""

from kvviz.engine.limits import check_prompt
from kvviz.engine.session import Session
from kvviz.models.loading import LoadedModel, load, random_gpt2_small

__all__ = ["LoadedModel", "Session", "check_prompt", "load", "random_gpt2_small"]
