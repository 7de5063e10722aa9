"""What can be loaded, and how. Import something from here before torch: its threads read the line below once.

Between two parallel loops OpenMP's threads spin. On a laptop whose cores also draw a browser, each loop then
waits for a thread that spins on the core it needs: decode steps were seen to take seven times as long. Waiting
asleep costs microseconds.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
