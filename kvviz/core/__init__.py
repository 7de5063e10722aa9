"""Facts about a run, as frozen dataclasses of NumPy arrays: what each pass was, and how to keep it.

Nothing here imports torch, transformers or Streamlit, and nothing holds a live tensor.
"""

from kvviz.core.checks import Check
from kvviz.core.facts import MachineFacts, ModelFacts, Sampling
from kvviz.core.run import Run
from kvviz.core.step import Proof, StepRecord, TwinPass

__all__ = ["Check", "MachineFacts", "ModelFacts", "Proof", "Run", "Sampling", "StepRecord", "TwinPass"]
