"""`python -m kvviz`: see `kvviz.cli`."""

import sys

from kvviz.cli import main

sys.exit(main())
