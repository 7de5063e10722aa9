"""What a run may ask for, checked in Python before any model call.

On a GPU an index past the end of a table ends the process for everybody; here it is a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.core.facts import ModelFacts
from kvviz.core.refusal import Refusal
from kvviz.models.loading import LoadedModel

KEEP_BYTES = 384 * 2**20  # of records a session: every run of GPT-2 small fits, whatever its prompt


def _code(base: str, facts: ModelFacts) -> str:
    """A learned table ends; a rotary model is stopped by kvviz: two different sentences."""
    return base if facts.positions == "learned" else f"{base}_rotary"


def room_after(facts: ModelFacts, P: int, length: int) -> int:
    """How many more tokens can be chosen with `length` positions stored (0: before prefill).

    The last chosen token is never fed, so a prompt of P leaves limit - P + 1.
    """
    return facts.max_positions - length if length else max(0, facts.max_positions - P + 1)


def record_bytes(facts: ModelFacts, Tq: int, T: int) -> int:
    """Bytes of a pass's arrays: attention L·H·Tq·T, q L·H·Tq·D, K and V 2·L·Hkv·Tq·D, as float16."""
    values = facts.heads * Tq * (T + facts.head_dim) + 2 * facts.kv_heads * Tq * facts.head_dim
    return 2 * facts.layers * values


def steps_within(facts: ModelFacts, T: int, steps: int, left: int) -> int:
    """How many of the next `steps` decode passes, at T+1 and on, have records that fit in `left` bytes."""

    def taken(n: int) -> int:  # record_bytes grows by the same amount from pass to pass
        first, last = record_bytes(facts, 1, T + 1), record_bytes(facts, 1, T + n)
        return n * (first + last) // 2

    low, high = 0, max(0, steps)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if taken(middle) <= left else (low, middle - 1)
    return low


def check_prompt(model: LoadedModel, prompt: str, new: int = 1, *, keep_bytes: int | None = KEEP_BYTES) -> list[int]:
    """The prompt's ids, if it can be run for `new` tokens. Raises Refusal:

    "empty_prompt", "bad_text", "too_long" {P, limit}, "too_many_new" {P, new, room, limit},
    "prompt_too_big" {model, P, bytes, limit} (the record of the prompt alone would not fit), "id_out_of_range".
    Codes about positions end in "_rotary" for a model without a position table.
    """
    facts = model.facts
    if not prompt:
        raise Refusal("empty_prompt")
    least = -(-len(prompt) // model.vocabulary.longest)  # tokens it takes at the very least
    if least > facts.max_positions:  # do not tokenise a book to learn that it is too long
        raise Refusal(_code("too_long", facts), model=facts.name, P=least, limit=facts.max_positions)
    ids = model.encode(prompt)
    P = len(ids)
    if P == 0:
        raise Refusal("empty_prompt")
    check_room(facts, P, new)
    check_ids(facts, ids)
    if keep_bytes is not None and (needed := record_bytes(facts, P, P)) > keep_bytes:
        raise Refusal("prompt_too_big", model=facts.name, P=P, bytes=needed, limit=keep_bytes)
    return ids


def check_room(facts: ModelFacts, P: int, new: int) -> None:
    """Raises Refusal "too_long" or "too_many_new" if P prompt tokens and `new` more do not fit the positions."""
    if P > facts.max_positions:
        raise Refusal(_code("too_long", facts), model=facts.name, P=P, limit=facts.max_positions)
    room = room_after(facts, P, 0)
    if new > room:
        values = {"model": facts.name, "P": P, "new": new, "room": room, "limit": facts.max_positions}
        raise Refusal(_code("too_many_new", facts), **values)


def check_ids(facts: ModelFacts, ids: Sequence[int]) -> None:
    """Raises Refusal "id_out_of_range" for an id with no row in the embedding table."""
    for i in ids:
        if not 0 <= i < facts.vocab_size:
            raise Refusal("id_out_of_range", id=int(i), vocab=facts.vocab_size)


def check_pass(facts: ModelFacts, ids: Sequence[int], start: int, length: int) -> None:
    """Before each model call: ids in range, at the positions that come next, and none past the end."""
    check_ids(facts, ids)
    if start != length:
        raise ValueError(f"position {start} does not follow {length} stored positions")
    if start + len(ids) > facts.max_positions:
        raise Refusal(_code("limit_reached", facts), model=facts.name, length=length, limit=facts.max_positions)
