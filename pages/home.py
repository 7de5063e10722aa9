"""What kvviz is, on a run that is already there; then the learner's own."""

from kvviz.features.home.parts import TRIES, below
from kvviz.ui import page

page.page("home", "run", TRIES, below)
