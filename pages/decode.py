"""One token at a time: a row of attention, a column of cache, and the same pass without the cache."""

from kvviz.features.decode.parts import TRIES, below
from kvviz.ui import page

page.page("decode", "run", TRIES, below)
