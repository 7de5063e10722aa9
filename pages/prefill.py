"""The whole prompt in one pass: the square under the mask, what is kept, what is thrown away."""

from kvviz.features.prefill.parts import TRIES, below
from kvviz.ui import page

page.page("prefill", "prefill", TRIES, below)
