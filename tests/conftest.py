"""What every test shares: no network, empty model caches, one place to find the repository."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OFFLINE = ROOT / "tests" / "offline"

# Set before anything imports huggingface_hub or Streamlit, which read the environment once.
_scratch = tempfile.TemporaryDirectory(prefix="kvviz-tests-")
os.environ["HF_HOME"] = str(Path(_scratch.name) / "empty-hub")
os.environ["KVVIZ_CACHE"] = str(Path(_scratch.name) / "empty-cache")
os.environ["KVVIZ_OFFLINE_LOG"] = str(Path(_scratch.name) / "outside.log")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(OFFLINE), os.environ.get("PYTHONPATH")]))
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for _name in (
    "KVVIZ_MODEL",
    "KVVIZ_DEVICE",
    "KVVIZ_DTYPE",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_CACHE",
):
    os.environ.pop(_name, None)

sys.path.insert(0, str(OFFLINE))
import sitecustomize  # noqa: E402

if not getattr(sys, "_kvviz_offline", False):  # the interpreter had loaded another sitecustomize
    sys.path.remove(str(OFFLINE))
    import importlib.util

    spec = importlib.util.spec_from_file_location("kvviz_offline", OFFLINE / "sitecustomize.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
else:
    sys.path.remove(str(OFFLINE))
    del sitecustomize


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def outside_log() -> Path:
    """What was asked of machines other than this one, by any process of the tests: a line each."""
    return Path(os.environ["KVVIZ_OFFLINE_LOG"])
