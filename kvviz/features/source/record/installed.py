"""The lines of the installed transformers that a model pass goes through, found in the package's own files.

Files are read and parsed, nothing of them is imported: a page can show them before PyTorch is there. A statement is
found by what its first line says, within a function found by its name; what a version does not have is reported.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import textwrap
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from kvviz.features.source.record.walk import Listing, Station, Walk

UTILS, CACHE = "generation/utils.py", "cache_utils.py"
GPT2, LLAMA = "models/gpt2/modeling_gpt2.py", "models/llama/modeling_llama.py"


class Anchor(NamedTuple):
    """Where a station is looked for."""

    name: str
    depth: int
    file: str
    function: str  # "Class.function"; of a class that inherits it from one in the same file, that one's is taken
    says: str  # regular expression for the beginning of the statement


_LOOP = "GenerationMixin._sample"
_HEAD, _TAIL = {}, {}
_HEAD["prefill"] = (
    Anchor("loop", 0, UTILS, _LOOP, r"outputs = self\._prefill\("),
    Anchor("feed", 0, UTILS, "GenerationMixin._prefill", r"return self\(\*\*model_inputs"),
)
_HEAD["decode"] = (
    Anchor("cut", 0, UTILS, _LOOP, r"next_sequence_length = 1 if"),
    Anchor("loop", 0, UTILS, _LOOP, r"outputs = model_forward\("),
)
_CHOOSE = {True: r"next_tokens = torch\.argmax", False: r"next_tokens = torch\.multinomial"}
_CACHE = (
    Anchor("cache", 5, CACHE, "DynamicCache.update", r"keys, values = self\.layers\[layer_idx\]\.update\("),
    Anchor("append_k", 6, CACHE, "DynamicLayer.update", r"self\.keys = torch\.cat\("),
    Anchor("append_v", 6, CACHE, "DynamicLayer.update", r"self\.values = torch\.cat\("),
    Anchor("hand_back", 6, CACHE, "DynamicLayer.update", r"return self\.keys, self\.values"),
)
_UPDATE, _ATTEND = r"key_states, value_states = \w+\.update\(", r"attn_output, attn_weights = attention_interface\("
_MASK = r"causal_mask = create_causal_mask\("
_MODELS = {
    "GPT2LMHeadModel": (
        Anchor("model", 1, GPT2, "GPT2LMHeadModel.forward", r"transformer_outputs\b.*= self\.transformer\("),
        Anchor("embed", 2, GPT2, "GPT2Model.forward", r"inputs_embeds\b.*= self\.wte\("),
        Anchor("position", 2, GPT2, "GPT2Model.forward", r"position_embeds = self\.wpe\("),
        Anchor("mask", 2, GPT2, "GPT2Model.forward", _MASK),
        Anchor("layers", 2, GPT2, "GPT2Model.forward", r"hidden_states = block\("),
        Anchor("block", 3, GPT2, "GPT2Block.forward", r"attn_output, _ = self\.attn\("),
        Anchor("qkv", 4, GPT2, "GPT2Attention.forward", r"query_states, key_states, value_states = self\.c_attn\("),
        Anchor("update", 4, GPT2, "GPT2Attention.forward", _UPDATE),
        *_CACHE,
        Anchor("attend", 4, GPT2, "GPT2Attention.forward", _ATTEND),
        Anchor("residual", 3, GPT2, "GPT2Block.forward", r"hidden_states = attn_output \+ residual"),
        Anchor("back", 2, GPT2, "GPT2Model.forward", r"return BaseModelOutputWithPast"),
        Anchor("logits", 1, GPT2, "GPT2LMHeadModel.forward", r"logits = self\.lm_head\("),
    ),
    "LlamaForCausalLM": (
        Anchor("model", 1, LLAMA, "LlamaForCausalLM.forward", r"outputs\b.*= self\.model\("),
        Anchor("embed", 2, LLAMA, "LlamaModel.forward", r"inputs_embeds\b.*= self\.embed_tokens\("),
        Anchor("mask", 2, LLAMA, "LlamaModel.forward", _MASK),
        Anchor("position", 2, LLAMA, "LlamaModel.forward", r"position_embeddings = self\.rotary_emb\("),
        Anchor("layers", 2, LLAMA, "LlamaModel.forward", r"hidden_states = decoder_layer\("),
        Anchor("block", 3, LLAMA, "LlamaDecoderLayer.forward", r"hidden_states, _ = self\.self_attn\("),
        Anchor("qkv", 4, LLAMA, "LlamaAttention.forward", r"key_states = self\.k_proj\("),
        Anchor("rotate", 4, LLAMA, "LlamaAttention.forward", r"query_states, key_states = apply_rotary_pos_emb\("),
        Anchor("update", 4, LLAMA, "LlamaAttention.forward", _UPDATE),
        *_CACHE,
        Anchor("attend", 4, LLAMA, "LlamaAttention.forward", _ATTEND),
        Anchor("residual", 3, LLAMA, "LlamaDecoderLayer.forward", r"hidden_states = residual \+ hidden_states"),
        Anchor("back", 2, LLAMA, "LlamaModel.forward", r"return BaseModelOutputWithPast"),
        Anchor("logits", 1, LLAMA, "LlamaForCausalLM.forward", r"logits = self\.lm_head\("),
    ),
}


def package() -> Path | None:
    """The folder of the installed transformers, or None; nothing is imported."""
    found = importlib.util.find_spec("transformers")
    return Path(found.origin).parent if found and found.origin else None


def walk(architecture: str, phase: str, *, greedy: bool, root: Path | None = None) -> Walk:
    """The way of a "prefill" or "decode" pass through the transformers in `root`, by default the one installed."""
    installed = root or package()
    if installed is None:
        return Walk(architecture, "", (), (), ("transformers",), "cache", None)
    return _walk(architecture, phase, greedy, installed, version("transformers") if root is None else "")


@functools.lru_cache(maxsize=16)
def _walk(architecture: str, phase: str, greedy: bool, root: Path, version: str) -> Walk:
    anchors = (
        *_HEAD[phase],
        *_MODELS.get(architecture, _CACHE),
        Anchor("choose", 0, UTILS, _LOOP, _CHOOSE[greedy]),
        Anchor("lengthen", 0, UTILS, _LOOP, r"input_ids = torch\.cat\(\[input_ids"),
    )
    listings: dict[tuple[str, str], Listing] = {}
    stations, missing = [], []
    for anchor in anchors:
        node = _function(root, anchor.file, anchor.function)
        lines = _lines(root, anchor.file)
        lit = _statement(node, lines, anchor.says) if node else None
        if node is None or lit is None:
            missing.append(f"{anchor.function}: {anchor.name}")
            continue
        key = anchor.file, anchor.function
        listings.setdefault(key, _listing(root.name, anchor, node, lines))
        stations.append(Station(anchor.name, list(listings).index(key), lit, anchor.depth))
    first = next((a for a in anchors if a.name == "model"), None)
    node = _function(root, first.file, first.function) if first else None
    argument, renamed = _argument(node)
    return Walk(architecture, version, tuple(listings.values()), tuple(stations), tuple(missing), argument, renamed)


@functools.lru_cache(maxsize=8)
def _lines(root: Path, file: str) -> tuple[str, ...]:
    path = root / file
    return tuple(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else ()


@functools.lru_cache(maxsize=8)
def _classes(root: Path, file: str) -> dict[str, ast.ClassDef]:
    try:
        tree = ast.parse("\n".join(_lines(root, file)))
    except SyntaxError:
        return {}
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _function(root: Path, file: str, name: str) -> ast.FunctionDef | None:
    """`Class.function`, or that of a base of the class in the same file."""
    classes = _classes(root, file)
    owner, function = name.split(".")
    while (found := classes.get(owner)) is not None:
        for node in found.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return node
        owner = next((b.id for b in found.bases if isinstance(b, ast.Name)), "")
    return None


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement inside, in the order of the file."""
    inside = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node]
    return iter(sorted(inside, key=lambda n: (n.lineno, n.col_offset)))


def _statement(node: ast.FunctionDef, lines: tuple[str, ...], says: str) -> tuple[int, int] | None:
    """First and last line of the first statement that begins so."""
    for each in _statements(node):
        if re.match(says, lines[each.lineno - 1].strip()):
            return each.lineno, each.end_lineno or each.lineno
    return None


def _listing(root: str, anchor: Anchor, node: ast.FunctionDef, lines: tuple[str, ...]) -> Listing:
    first, last = min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.end_lineno or node.lineno
    body = textwrap.dedent("\n".join(lines[first - 1 : last])).split("\n")
    doc = node.body[0]
    prose = None
    if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str):
        prose = doc.lineno, doc.end_lineno or doc.lineno
    return Listing(anchor.function, f"{root}/{anchor.file}", first, tuple(body), prose)


def _argument(node: ast.FunctionDef | None) -> tuple[str, str | None]:
    """The name of the cache in a forward, and the version that its decorator names as the old one's end."""
    if node is None:
        return "cache", None
    names = [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
    renamed = None
    for call in (d for d in node.decorator_list if isinstance(d, ast.Call)):
        told = [a.value for a in call.args if isinstance(a, ast.Constant)]
        if len(told) > 1 and told[0] == "past_key_values":
            renamed = str(told[1])
    return next((n for n in ("cache", "past_key_values") if n in names), "cache"), renamed
