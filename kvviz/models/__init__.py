"""What can be loaded, and how. Import something from here before torch and huggingface_hub: they read the lines below
once.

Between two parallel loops OpenMP's threads spin. On a laptop whose cores also draw a browser, each loop then
waits for a thread that spins on the core it needs: decode steps were seen to take seven times as long. Waiting
asleep costs microseconds.

The hub's client would tell the hub what else is installed, and first fetch a list of programs to look for.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
