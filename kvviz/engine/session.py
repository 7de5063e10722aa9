"""A live run: one prompt through one model, pass by pass, with its cache and its no-cache twin.

Shape letters: L layers, H heads, Hkv KV heads, Tq queries of this pass, T positions stored after it.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import torch

from kvviz.core import Run, Sampling, StepRecord, TwinPass
from kvviz.core.refusal import Refusal
from kvviz.engine import cache_api, failures, limits, proofs
from kvviz.engine.attention import to_arrays
from kvviz.engine.feed import Pass, predictions, run_pass, warm_up
from kvviz.engine.sampling import Sampler, candidates
from kvviz.models.loading import LoadedModel

CANDIDATES = 10
REWINDS = 32  # passes that can be taken back


class Session:
    """`prefill()` once, then `decode_one_token()` for as long as there is `room`.

    `compare` may be switched between steps. `capture=False` leaves the arrays of a record empty (Tq = 0):
    for timing only. A pass that raises leaves the session where it was before it; only memory that runs out or a
    device that fails ends it: its cache goes, `room` is 0, what was recorded stays.
    """

    def __init__(
        self,
        model: LoadedModel,
        prompt: str,
        sampling: Sampling | None = None,
        *,
        compare: bool = True,
        capture: bool = True,
        keep_bytes: int = limits.KEEP_BYTES,
    ) -> None:
        """Raises a Refusal from `limits.check_prompt` or `sampling.check`; runs nothing yet."""
        sampling = sampling or Sampling()
        self.model = model
        self.compare = compare
        self.capture = capture
        self.keep_bytes = keep_bytes
        self._ids = limits.check_prompt(model, prompt, keep_bytes=keep_bytes if capture else None)
        self._sampler = Sampler(sampling)
        self._cache = cache_api.new_cache()
        self._lock = threading.RLock()  # two tabs of one learner may ask at once
        self._broken = False
        self._kept = 0  # bytes of the arrays recorded so far
        # what the newest passes began with, to go back to: run, bytes kept, the sampler's generator
        self._earlier: deque[tuple[Run, int, torch.Tensor]] = deque(maxlen=REWINDS)
        ids = _frozen(np.array(self._ids, dtype=np.int64))
        self._run = Run(
            key=secrets.token_hex(8),
            prompt=prompt,
            prompt_ids=ids,
            model=model.facts,
            machine=model.machine,
            sampling=sampling,
            pieces=model.pieces(self._ids),
            compared=compare,
        )

    @property
    def run(self) -> Run:
        """The run so far: immutable, a new one after each step."""
        return self._run

    @property
    def ended(self) -> bool:
        """A pass broke this session for good; `room` is 0 for that reason and no other."""
        return self._broken

    @property
    def room(self) -> int:
        """How many more tokens can be chosen before positions or memory end. 0: `decode_one_token` refuses."""
        facts, run = self.model.facts, self._run
        room = 0 if self._broken else limits.room_after(facts, run.P, run.length)
        left = self.keep_bytes - self._kept
        if not self.capture or not room:
            return room
        if run.steps:
            return limits.steps_within(facts, run.length, room, left)
        return 1 + limits.steps_within(facts, run.P, room - 1, left - limits.record_bytes(facts, run.P, run.P))

    def prefill(self) -> StepRecord:
        """Pass 0: the whole prompt at once, into an empty cache."""
        with self._lock:
            if self._run.steps:
                raise RuntimeError("this session has been prefilled; a new run takes a new session")

            def work() -> StepRecord:
                warm_up(self.model, self._run.P)
                return self._step(self._ids)

            return self._run_or_end(work)

    def decode_one_token(self) -> StepRecord:
        """Pass s >= 1: the token chosen last goes in alone.

        Raises Refusal "limit_reached", "limit_reached_rotary", "run_full" or "session_broken"; as `prefill` does,
        "out_of_memory", "device_failed" or "device_lost".
        """
        with self._lock:
            if not self._run.steps:
                raise RuntimeError("prefill comes first")
            fed = [self._run.steps[-1].chosen]
            return self._run_or_end(lambda: self._step(fed))

    def advance(self, to: int, stop: Callable[[], bool] = lambda: False) -> Run:
        """Go on until the run has `to` passes, `stop()` says so between two of them, or there is no room.

        The target is absolute: asked twice for the same, it does nothing the second time.
        """
        with self._lock:
            while len(self._run.steps) < to and self.room and not stop():
                _ = self.decode_one_token() if self._run.steps else self.prefill()
            return self._run

    def rewind(self, to: int) -> Run:
        """Take back the newest passes until `to` are left: what follows chooses as if they had never been.

        ValueError if no pass would be left, or more than REWINDS had to go. Does nothing to a session that has ended.
        """
        with self._lock:
            back = len(self._run.steps) - to
            if to < 1 or back > len(self._earlier):
                raise ValueError(f"{back:,} of {len(self._run.steps):,} passes cannot be taken back")
            if self._broken or back <= 0:
                return self._run
            for _ in range(back):
                self._run, self._kept, draws = self._earlier.pop()
            self._sampler.generator.set_state(draws)
            self._go_back(self._run.length)
            return self._run

    def generate_without_cache(self, n: int) -> Iterator[StepRecord]:
        """The twin alone: the same prompt, each pass fed the whole prefix, nothing kept. Records of its own.

        Neither touches this session's run nor depends on it. Here Tq is the prefix, and T in a record's
        `kv_shape` is 0.
        """
        return failures.each_or_end(self.model, self._without_cache(n))

    def _without_cache(self, n: int) -> Iterator[StepRecord]:
        model, sampler, ids = self.model, Sampler(self._run.sampling), list(self._ids)
        limits.check_prompt(model, self._run.prompt, n, keep_bytes=None)
        warm_up(model, len(ids))
        for index in range(n):
            with torch.inference_mode():
                done = run_pass(model, ids, 0, None, listen=self.capture)
                chosen = sampler.choose(done.logits)
                step = self._record(index, ids, 0, done, chosen, cached=False)
            ids = [*ids, chosen]
            yield step

    def _step(self, fed: list[int]) -> StepRecord:
        """One pass, recorded; on any error the cache goes back to the last step's end."""
        index, before = len(self._run.steps), self._run.length
        needed = limits.record_bytes(self.model.facts, len(fed), before + len(fed)) if self.capture else 0
        if self._kept + needed > self.keep_bytes:
            raise Refusal("run_full", bytes=self._kept, limit=self.keep_bytes, step=index)
        draws = self._sampler.generator.get_state()
        try:
            with self.model.lock, torch.inference_mode():  # nobody else's work while this one is timed
                done = run_pass(self.model, fed, before, self._cache, listen=self.capture)
                twin_sampler = self._sampler.clone()  # will make the same draw
                chosen = self._sampler.choose(done.logits)
                checks = proofs.of_cache(self._cache, self.model.facts, before + len(fed))
                twin = None
                if self.compare:
                    twin, more = self._twin(
                        [*self._run.ids.tolist(), *fed][: before + len(fed)], done, chosen, twin_sampler
                    )
                    checks = (*more, *checks)
                step = self._record(index, fed, before, done, chosen, cached=True)
        except BaseException:
            self._sampler.generator.set_state(draws)
            self._go_back(before)
            raise
        step = dataclasses.replace(step, proofs=checks, twin=twin)
        self._earlier.append((self._run, self._kept, draws))
        new = {chosen, *step.top_ids.tolist(), *(step.predictions.tolist() if step.predictions is not None else ())}
        longer = self._run.with_step(step, self.model.pieces(new - self._run.pieces.keys()))
        self._run = dataclasses.replace(longer, compared=(index == 0 or self._run.compared) and twin is not None)
        self._kept += needed
        return step

    def _run_or_end(self, work: Callable[[], StepRecord]) -> StepRecord:
        """`work()`. Out of memory, or with the device failing: no more passes, and the cache's memory goes back."""
        if self._broken:
            raise Refusal("session_broken", step=len(self._run.steps))

        def end() -> None:
            self._cache, self._broken = cache_api.new_cache(), True

        return failures.run_or_end(self.model, work, end)

    def _go_back(self, length: int) -> None:
        """The cache as it was when it held `length` positions; if that cannot be had, no more steps."""
        try:
            if length:
                cache_api.cut_back(self._cache, length)
            else:
                self._cache = cache_api.new_cache()
            self._broken = cache_api.length(self._cache) != length
        except Exception:
            self._broken = True

    def _twin(self, prefix: list[int], done: Pass, chosen: int, sampler: Sampler) -> tuple[TwinPass, tuple]:
        """The same prefix with no cache, and the proofs that come of it."""
        again = run_pass(self.model, prefix, 0, None, listen=True)
        kv, largest = proofs.largest_kv_difference(self._cache, again.layers)
        top = done.logits.topk(min(2, len(done.logits))).values
        token = sampler.choose(again.logits)
        twin = TwinPass(
            ms=again.ms,
            rows=len(prefix),
            chosen=token,
            same_token=token == chosen,
            max_abs_dlogit=float((done.logits - again.logits).abs().max()),
            max_abs_dkv=kv,
            margin=float(top[0] - top[-1]),
        )
        return twin, proofs.of_twin(twin, largest, self.model.facts.dtype)

    def _record(self, index: int, fed: list[int], start: int, done: Pass, chosen: int, *, cached: bool) -> StepRecord:
        facts, T = self.model.facts, start + len(fed)
        L, H, Hkv, D = facts.layers, facts.heads, facts.kv_heads, facts.head_dim
        ids, top, probabilities = candidates(done.logits, CANDIDATES)
        best = best_probs = None
        if done.layers:
            attention, q, k, v = to_arrays(done.layers)
            if index == 0:
                best, best_probs = (t.numpy() for t in predictions(self.model, fed, done))
        else:
            attention, q = np.zeros((L, H, 0, T), np.float16), np.zeros((L, H, 0, D), np.float16)
            k, v = np.zeros((L, Hkv, 0, D), np.float16), np.zeros((L, Hkv, 0, D), np.float16)
        return StepRecord(
            index=index,
            phase="prefill" if index == 0 else "decode",
            ids=_frozen(np.array(fed, dtype=np.int64)),
            positions=_frozen(np.arange(start, T, dtype=np.int64)),
            length_before=start,
            length_after=T if cached else 0,
            kv_shape=cache_api.shape(self._cache)
            if cached
            else (facts.layers, 2, 1, facts.kv_heads, 0, facts.head_dim),
            kv_tensors=len(cache_api.tensors(self._cache)) if cached else 0,
            kv_bytes=cache_api.nbytes(self._cache) if cached else 0,
            attention=_frozen(attention),
            q=_frozen(q),
            k=_frozen(k),
            v=_frozen(v),
            top_ids=_frozen(ids.numpy().copy()),
            top_probs=_frozen(top.numpy().astype(np.float32)),
            chosen=chosen,
            chosen_prob=float(probabilities[chosen]),
            is_end=chosen == facts.eos_id,
            ms=done.ms,
            proofs=(),
            predictions=_frozen(best),
            prediction_probs=_frozen(best_probs),
        )


def _frozen(array: np.ndarray | None) -> np.ndarray | None:
    """The array itself, made read-only: what was true then stays so."""
    if array is not None:
        array.setflags(write=False)
    return array
