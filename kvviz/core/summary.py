"""A run in a dozen numbers, for a terminal or another program."""

from __future__ import annotations

import statistics
from typing import Any

from kvviz.core.run import Run
from kvviz.theory import work


def summary(run: Run) -> dict[str, Any]:
    """What `python -m kvviz record` prints as JSON. Times in milliseconds, null where nothing was measured.

    `tpot_ms` is the median over the decode passes; `max_abs_dlogit` and the twin's times need `--compare`.
    """
    steps, N = run.steps, len(run.steps)
    twins = [s.twin for s in steps if s.twin is not None]
    whole = b"".join(run.pieces[int(i)] for i in run.ids)
    new = b"".join(run.pieces[int(i)] for i in run.new_ids)
    return {
        "model": run.model.name,
        "prompt": run.prompt,
        "prompt_ids": run.prompt_ids.tolist(),
        "new_ids": run.new_ids.tolist(),
        "text": whole.decode("utf-8", errors="replace"),
        "new_text": new.decode("utf-8", errors="replace"),
        "cache_length": run.length,
        "cache_bytes": steps[-1].kv_bytes,
        "kv_shape": list(steps[-1].kv_shape),
        "rows_with_cache": sum(s.rows for s in steps),
        "rows_without_cache": sum(t.rows for t in twins) if run.compared else work.rows_without_cache(run.P, N),
        "compared": run.compared,
        "max_abs_dlogit": max(t.max_abs_dlogit for t in twins) if twins else None,
        "max_abs_dkv": max(t.max_abs_dkv for t in twins) if twins else None,
        "tokens_equal": all(t.same_token for t in twins) if twins else None,
        "tokens_compared": len(twins),
        "proofs_failed": sum(p.verdict == "fails" for s in steps for p in s.proofs),
        "ttft_ms": steps[0].ms,
        "tpot_ms": statistics.median(s.ms for s in steps[1:]) if N > 1 else None,
        "twin_ttft_ms": steps[0].twin.ms if steps[0].twin else None,
        "twin_tpot_ms": statistics.median(t.ms for t in twins[1:]) if run.compared and N > 1 else None,
        "repeats": run.repeats,
        "dtype": run.model.dtype,
        "device": run.machine.device,
        "device_name": run.machine.device_name,
        "threads": run.machine.threads,
        "torch": run.machine.torch,
        "transformers": run.machine.transformers,
    }
