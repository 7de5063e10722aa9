// The side cards: shapes, bytes, time, next token. Built once; each render changes texts only.

const MEASURED_FROM = 16; // decode passes before a median is shown
const CANDIDATES = 5;

// Set text only where it differs: most of a card stays the same from step to step.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, className, parent, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

class Cards {
  constructor(side) {
    this.side = side;
    this.shapes = make("section", "kvp-card", side);
    this.shapeTitle = make("h3", "", this.shapes);
    this.rows = ["q", "k", "v"].map((name) => this.shapeRow(name));
    this.attention = make("div", "kvp-num kvp-mut", this.shapes);
    this.bytesTitle = make("h3", "kvp-second", this.shapes);
    this.bytes = make("div", "kvp-big", this.shapes);
    this.formula = make("div", "kvp-num kvp-mut", this.shapes);
    this.time = make("section", "kvp-card", side);
    this.timeTitle = make("h3", "", this.time);
    this.times = [make("div", "kvp-num", this.time), make("div", "kvp-num", this.time)];
    this.next = make("section", "kvp-card", side);
    this.nextTitle = make("h3", "", this.next);
    this.bars = Array.from({ length: CANDIDATES }, () => this.bar());
    this.note = make("div", "kvp-note", this.next);
  }

  shapeRow(name) {
    const row = make("div", "kvp-shape", this.shapes);
    make("span", `kvp-${name}`, row, name.toUpperCase());
    const before = make("span", "", row);
    const changed = make("u", `kvp-u${name}`, row);
    const after = make("span", "", row);
    return { before, changed, after };
  }

  bar() {
    const row = make("div", "kvp-bar", this.next);
    return {
      row,
      label: make("span", "kvp-tok", row),
      fill: make("i", "", make("span", "kvp-track", row)),
      value: make("span", "kvp-num", row),
    };
  }

  render(scene) {
    const { store, pass, state, s } = scene;
    const { model } = store;
    setText(this.shapeTitle, words.plain("shapes_title"));
    setText(this.bytesTitle, words.plain("bytes_title"));
    setText(this.timeTitle, words.plain("time_title"));
    setText(this.nextTitle, words.plain("next_title"));
    const fill = (row, heads, n) => {
      setText(row.before, ` (1, ${heads}, `);
      setText(row.changed, String(n));
      setText(row.after, `, ${model.D})`);
    };
    const rows = pass ? pass.rows : 0;
    const T = pass ? pass.T : 0;
    fill(this.rows[0], model.H, rows);
    fill(this.rows[1], model.Hkv, T);
    fill(this.rows[2], model.Hkv, T);
    setText(this.attention, words.plain("attention_shape", { shape: `(1, ${model.H}, ${rows}, ${T})` }));
    setText(this.bytes, words.plain("bytes_n", { bytes: integer(pass ? pass.bytes : 0) }));
    setText(this.formula, `2·${model.L}·${model.Hkv}·${model.D}·${T}·${model.bytes} ${words.plain("bytes_unit")}`);
    this.renderTime(store, s);
    this.renderNext(pass, store, state.substep);
    this.dim(this.shapes, state.substep, "shapes", "cache");
    this.dim(this.time, state.substep, "time");
    this.dim(this.next, state.substep, "next");
  }

  dim(card, substep, ...regions) {
    card.classList.toggle("dim", emphasis(substep, ...regions) < 1);
  }

  // Running medians over the decode passes so far, never a single pass.
  renderTime(store, s) {
    const passes = store.passes.slice(1, s + 1);
    const [first, second] = this.times;
    const compared = passes.filter((p) => p.twin);
    let a = "";
    let b = "";
    if (s <= 0) a = words.plain("time_prefill");
    else if (passes.length < MEASURED_FROM)
      a = words.plain("time_measuring", { passes: passes.length, needed: MEASURED_FROM });
    else {
      a = words.plain("time_with", { ms: milliseconds(median(passes.map((p) => p.ms))) });
      if (compared.length >= MEASURED_FROM)
        b = words.plain("time_without", { ms: milliseconds(median(compared.map((p) => p.twin.ms))) });
      else
        b = compared.length
          ? words.plain("time_measuring", { passes: compared.length, needed: MEASURED_FROM })
          : words.plain("time_not_compared");
    }
    setText(first, a);
    setText(second, b);
    first.classList.toggle("kvp-mut", s <= 0 || passes.length < MEASURED_FROM);
    second.classList.toggle("kvp-w", b !== "" && compared.length >= MEASURED_FROM);
  }

  // Empty before the logits are there, and with nothing marked before one is chosen.
  renderNext(pass, store, substep) {
    const top =
      pass && reached(substep, "logits")
        ? pass.top.slice(0, CANDIDATES).map(([label, p]) => ({ label, p, chosen: false }))
        : [];
    const chosen = pass && reached(substep, "choose");
    if (chosen) {
      const rank = pass.top.findIndex(([label]) => label === pass.token);
      if (pass.best) top[0].chosen = true;
      else if (rank >= 0 && rank < top.length) top[rank].chosen = true;
      else top[top.length - 1] = { label: pass.token, p: pass.p, chosen: true };
    }
    const most = Math.max(...top.map((c) => c.p), 1e-9);
    this.bars.forEach((bar, i) => {
      const candidate = top[i];
      bar.row.style.visibility = candidate ? "" : "hidden";
      if (!candidate) return;
      bar.row.classList.toggle("chosen", candidate.chosen);
      setText(bar.label, candidate.label);
      setText(bar.value, percent(candidate.p));
      bar.fill.style.width = `${(100 * candidate.p) / most}%`;
    });
    const name = !chosen ? "" : pass.end ? "next_end" : store.sampling.greedy ? "next_greedy" : "next_sampled";
    setText(this.note, name ? words.plain(name, { temperature: store.sampling.temperature }) : "");
  }
}
