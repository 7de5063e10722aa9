"""kvviz: step a language model through prefill and decode, and see its KV cache."""

__version__ = "0.1.0"
