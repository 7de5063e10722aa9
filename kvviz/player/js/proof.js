// The proof strip: what the engine checked on the live tensors, up to the pass on screen.

const DTYPES = { float32: "fp32", float16: "fp16", bfloat16: "bf16" };
const WORST = { holds: 0, rounding: 1, fails: 2 };
const SIGNS = { holds: "✓", rounding: "≈", fails: "✗", none: "–" };

// [{state, name, values}] for passes 0 .. s: one entry a check, a failing one with what failed.
function proofsUpTo(store, s) {
  const passes = store.passes.slice(0, s + 1);
  const dtype = DTYPES[store.model.dtype] || store.model.dtype;
  const gather = (name) => {
    const found = [];
    passes.forEach((pass, step) =>
      pass.proofs
        .filter((q) => q[0] === name)
        .forEach((q) => found.push({ step, verdict: q[1], value: q[2], limit: q[3] })),
    );
    const state = found.reduce((worst, q) => (WORST[q.verdict] > WORST[worst] ? q.verdict : worst), "holds");
    return { found, state, last: found[found.length - 1], worst: found.find((q) => q.verdict === state) };
  };
  const largestOf = (found) => found.reduce((m, q) => (typeof q.value === "number" ? Math.max(m, q.value) : m), 0);
  const out = [];

  const tokens = gather("tokens");
  const logits = gather("logits");
  if (!tokens.found.length && !logits.found.length) out.push({ state: "none", name: "proof_none", values: {} });
  else {
    const state = WORST[tokens.state] > WORST[logits.state] ? tokens.state : logits.state;
    const compared = passes.filter((pass) => pass.twin);
    const forks = state === "rounding" && tokens.state === "rounding"; // half precision chose another token
    const bad =
      state === "holds"
        ? null
        : forks
        ? tokens.worst.step
        : passes.findIndex((pass) =>
            pass.proofs.some((q) => (q[0] === "tokens" || q[0] === "logits") && q[1] === state),
          );
    const pass = bad === null ? null : passes[bad];
    const logitsOnly = state === "fails" && tokens.state !== "fails"; // the same tokens all along
    out.push({
      state,
      name: logitsOnly ? "proof_logits_fails" : forks ? "proof_equal_fork" : `proof_equal_${state}`,
      values: {
        same: integer(compared.filter((p) => p.twin.same).length),
        n: integer(compared.length),
        delta: scientific(logitsOnly ? logits.worst.value : largestOf(logits.found)),
        dtype,
        limit: logits.last ? scientific(logits.last.limit) : "",
        step: bad,
        a: pass ? short(pass.token) : "",
        b: pass && pass.twin ? short(pass.twin.token) : "",
        margin: pass && pass.twin ? scientific(pass.twin.margin) : "",
      },
    });
  }
  const kv = gather("same_kv");
  if (kv.found.length) {
    const values = {
      delta: scientific(largestOf(kv.found)),
      step: kv.worst.step,
      limit: scientific(kv.worst.limit),
      dtype,
    };
    out.push({ state: kv.state, name: `proof_kv_${kv.state}`, values });
  }
  const bytes = gather("bytes");
  if (bytes.found.length) {
    const shown = bytes.state === "holds" ? bytes.last : bytes.worst;
    const values = {
      tensors: integer(passes[shown.step].tensors),
      bytes: integer(shown.value),
      formula: integer(shown.limit),
      step: shown.step,
    };
    out.push({ state: bytes.state, name: `proof_bytes_${bytes.state === "holds" ? "holds" : "fails"}`, values });
  }
  const length = gather("length");
  if (length.found.length) {
    const shown = length.state === "holds" ? length.last : length.worst;
    const pass = passes[shown.step];
    const values = {
      T: integer(shown.value),
      before: integer(pass.before),
      rows: integer(pass.rows),
      limit: integer(shown.limit),
      step: shown.step,
    };
    out.push({ state: length.state, name: `proof_length_${length.state === "holds" ? "holds" : "fails"}`, values });
  }
  return out;
}

class ProofStrip {
  constructor(element) {
    this.element = element;
    this.items = [];
    this.shown = [];
  }

  // A failing check comes first and keeps its sentence; the others follow.
  render(scene) {
    const { store, s } = scene;
    const proofs = s < 0 ? [] : proofsUpTo(store, s).sort((a, b) => (b.state === "fails") - (a.state === "fails"));
    while (this.items.length < proofs.length) {
      const item = make("span", "", this.element);
      this.items.push({ item, sign: make("i", "", item), text: make("span", "", item) });
      this.shown.push("");
    }
    this.items.forEach(({ item, sign, text }, i) => {
      const proof = proofs[i];
      const key = proof ? JSON.stringify([words.language, proof]) : "";
      if (this.shown[i] === key) return;
      this.shown[i] = key;
      item.hidden = !proof;
      if (!proof) return;
      item.className = `kvp-proof-item ${proof.state}`;
      item.dataset.state = proof.state;
      sign.textContent = SIGNS[proof.state];
      words.fill(text, proof.name, proof.values);
    });
  }
}
