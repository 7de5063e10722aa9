// One head opened: all of attention on real values. Q above; a row a token: K, its score, its weight, V;
// below, the weighted sum of the V rows.

const HEAD_LEFT = 112;

function headGeometry(scene) {
  const { regions, store, T } = scene;
  const { D } = store.model;
  const block = Math.min(400, (regions.width - HEAD_LEFT - 14 - 66 - 122 - 8) / 2);
  const cell = block / D;
  const xScore = HEAD_LEFT + block + 14;
  const xWeight = xScore + 66;
  const xV = xWeight + 122;
  const top = 62;
  const rows = headRows(regions.stage - top - 40, T);
  const fold = rows.first ? rows.fold : 0;
  const yOf = (t) => top + fold + (t - rows.first) * rows.row;
  return { block, cell, xScore, xWeight, xV, top, rows, fold, yOf, ySum: yOf(T) + 10, D };
}

// Positive values in the tensor's hue, negative ones grey, both by size.
function drawValues(p, x, y, values, most, hue, cell, h, alpha) {
  const w = cell >= 4 ? cell - 1 : cell >= 2 ? cell - 0.4 : cell;
  p.box(x, y, cell * values.length - (cell - w), h, p.theme.card, alpha);
  for (const sign of [1, -1]) {
    p.washed(sign > 0 ? hue : p.theme.mut, (wash) => {
      for (let d = 0; d < values.length; d++) {
        const size = Math.min(1, (sign * values[d]) / most);
        if (size > 0) wash(x + d * cell, y, w, h, alpha * size * (sign > 0 ? 1 : 0.8));
      }
    });
  }
}

// Values of everything on this picture, also for hovering.
function headValues(scene) {
  const { store, state, s, T } = scene;
  const slab = store.slab(state.layer, state.head, T);
  const weights = store.weights(state.layer, state.head, s);
  if (!slab || !weights) return null;
  const { D } = store.model;
  const row = (rows, t) => Array.from({ length: D }, (_, d) => rows.at(t, d));
  const sum = new Array(D).fill(0);
  const most = { q: 1e-6, k: 1e-6, v: 1e-6, sum: 1e-6 };
  for (let t = 0; t < T; t++) {
    for (let d = 0; d < D; d++) {
      sum[d] += weights(t) * slab.v.at(t, d);
      most.k = Math.max(most.k, Math.abs(slab.k.at(t, d)));
      most.v = Math.max(most.v, Math.abs(slab.v.at(t, d)));
    }
  }
  const q = row(slab.q, T - 1);
  most.q = Math.max(most.q, ...q.map(Math.abs));
  most.sum = Math.max(most.sum, ...sum.map(Math.abs));
  return {
    q,
    sum,
    most,
    weights,
    scores: scoresOfRow(slab, T - 1, T, store.model),
    k: (t) => row(slab.k, t),
    v: (t) => row(slab.v, t),
  };
}

function drawHead(p, scene) {
  const { regions, store, state, T, newFrom } = scene;
  const { substep } = state;
  const values = headValues(scene);
  if (!values) {
    p.text(words.plain("fetching"), HEAD_LEFT, 24, { colour: p.theme.mut });
    return;
  }
  const g = headGeometry(scene);
  const { row } = g.rows;
  const bar = row - (row >= 14 ? 2 : 1);
  const lit = (...names) => emphasis(substep, ...names);
  const frame = (x, y, h) => p.round(x - 1.5, y - 1.5, g.block + 2, h + 3, 3, { stroke: p.theme.fg, width: 1.5 });
  const label = short(store.labels[T - 1], 10);
  const seen = store.firstSeen(state.layer, T - 1);

  p.faded(lit("q", "tokens"), () => {
    p.text(words.plain("q_of", { token: label }), HEAD_LEFT - 10, 17, {
      align: "right",
      weight: 650,
      colour: p.theme.qt,
      most: 104,
    });
    drawValues(p, HEAD_LEFT, 4, values.q, values.most.q, p.theme.q, g.cell, 18, 1);
    frame(HEAD_LEFT, 4, 18);
  });
  p.faded(lit("cache", "keys", "new"), () =>
    p.text(`K (${T} × ${g.D})`, HEAD_LEFT, g.top - 8, { weight: 650, colour: p.theme.kt }),
  );
  p.faded(lit("cache", "valuerows", "new"), () =>
    p.text(`V (${T} × ${g.D})`, g.xV, g.top - 8, { weight: 650, colour: p.theme.vt }),
  );
  p.faded(lit("attention"), () => {
    p.text(`Q·K/${divisor(store.model)}`, g.xScore + 52, g.top - 8, { align: "right", colour: p.theme.mut });
    p.text("softmax", g.xWeight, g.top - 8, { colour: p.theme.mut });
  });
  if (g.fold) drawHeadFold(p, scene, g, values, seen);
  for (let t = g.rows.first; t < T; t++) {
    const y = g.yOf(t);
    const isNew = t >= newFrom;
    const shade = isNew ? 1 : 0.55;
    const middle = y + bar / 2 + 4;
    const size = row >= 14 ? 12 : 10.5;
    p.faded(lit("tokens", "cache", "keys"), () => {
      p.text(String(t), HEAD_LEFT - 100, middle, { size: 10, colour: p.theme.mut });
      p.text(store.labels[t], HEAD_LEFT - 10, middle, {
        size,
        mono: true,
        align: "right",
        weight: t === T - 1 ? 700 : 400,
        most: 72,
      });
    });
    drawValues(
      p,
      HEAD_LEFT,
      y,
      values.k(t),
      values.most.k,
      p.theme.k,
      g.cell,
      bar,
      shade * lit(isNew ? "new" : "cache", "cache", "keys"),
    );
    drawValues(
      p,
      g.xV,
      y,
      values.v(t),
      values.most.v,
      p.theme.v,
      g.cell,
      bar,
      shade * lit(isNew ? "new" : "cache", "cache", "valuerows"),
    );
    if (t === T - 1 || (isNew && substep === 2)) {
      p.faded(lit("cache", "new", "keys"), () => frame(HEAD_LEFT, y, bar));
      p.faded(lit("cache", "new", "valuerows"), () => frame(g.xV, y, bar));
    }
    p.faded(lit("attention"), () => {
      const hidden = t < seen && reached(substep, "mask");
      const colour = hidden ? p.theme.mut : p.theme.fg;
      p.text(minus(values.scores[t].toFixed(2)), g.xScore + 52, middle, { size, mono: true, align: "right", colour });
      if (hidden) {
        p.box(g.xWeight, y, 72, bar, p.theme.masked);
        return;
      }
      if (substep === 3 || substep === 4) return;
      const w = Math.max(1, values.weights(t) * 72);
      p.round(g.xWeight, y + bar * 0.15, w, bar * 0.7, 2, { fill: p.theme.q });
      p.text(percent(values.weights(t)), g.xWeight + w + 5, middle, { size: 10.5, colour: p.theme.mut });
    });
  }
  p.faded(lit("valuerows"), () => {
    p.text(words.plain("weighted_sum"), g.xV - 12, g.ySum + 13, { align: "right", weight: 650 });
    drawValues(p, g.xV, g.ySum, values.sum, values.most.sum, p.theme.fg, g.cell, 18, 1);
    frame(g.xV, g.ySum, 18);
  });
}

// The rows that do not fit: how many, and how much attention they get together.
function drawHeadFold(p, scene, g, values, seen) {
  const { rows, top } = g;
  let sum = 0;
  for (let t = 0; t < rows.first; t++) sum += values.weights(t);
  const middle = top + 13;
  p.text(`0…${rows.first - 1}`, HEAD_LEFT - 100, middle, { size: 10, colour: p.theme.mut });
  p.text(words.plain("folded_rows", { rows: rows.first }), HEAD_LEFT + 2, middle, {
    size: 10.5,
    colour: p.theme.mut,
    most: g.block,
  });
  p.text(words.plain("folded_rows", { rows: rows.first }), g.xV + 2, middle, {
    size: 10.5,
    colour: p.theme.mut,
    most: g.block,
  });
  if (rows.first <= seen && reached(scene.state.substep, "mask")) {
    p.box(g.xWeight, top + 4, 72, 12, p.theme.masked);
    return;
  }
  const w = Math.max(1, sum * 72);
  p.round(g.xWeight, top + 4, w, 12, 2, { fill: p.theme.q });
  p.text(percent(sum), g.xWeight + w + 5, middle, { size: 10.5, colour: p.theme.mut });
}
