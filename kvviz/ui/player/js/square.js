// Prefill's Tq x T square in the columns of the grid: scores, then the mask, then the weights.

// Rows from `first` on, each `h` high; the square is drawn no larger than its cells are wide.
function squareRows(scene) {
  const { regions, T } = scene;
  const { columns, attention } = regions;
  const rows = T - columns.first;
  const h = Math.min(attention.h / rows, columns.width);
  return { first: columns.first, rows, h, top: attention.y + attention.h - rows * h };
}

function drawSquare(p, scene) {
  const { regions, store, state, T } = scene;
  const { attention } = regions;
  const { substep } = state;
  drawAttentionName(p, scene, attention.y + attention.h - 46);
  const square = store.square(state.layer, state.head);
  const stage = substep === null || substep > 5 ? "softmax" : ["none", "none", "none", "scores", "mask", "softmax"][substep];
  const scores = stage === "scores" || stage === "mask" ? squareScores(scene) : null;
  if (!square || ((stage === "scores" || stage === "mask") && !scores)) {
    p.text(words.plain("fetching"), LABELS + 4, attention.y + 14, { colour: p.theme.mut });
    return;
  }
  p.faded(emphasis(substep, "attention"), () => {
    drawSquareCells(p, scene, stage, square, scores);
    if (stage === "none") return;
    const { first, h, top } = squareRows(scene);
    const { columns } = regions;
    const y = top + (T - 1 - first) * h;
    p.round(LABELS - 1, y - 0.5, columns.x(T) - LABELS, h + 1, 2, { stroke: p.theme.fg, width: 1.5 });
  });
}

function drawSquareCells(p, scene, stage, square, scores) {
  const { regions, state, T } = scene;
  const { columns } = regions;
  const { first, rows, h, top } = squareRows(scene);
  const gap = h >= 8 ? 1.5 : h >= 4 ? 0.75 : 0;
  const shown = state.grown === null ? rows : state.grown; // rows that have appeared, while it grows
  const w = columns.width - (columns.width >= 20 ? 2.5 : 1);
  for (let r = 0; r < rows; r++) {
    const i = first + r;
    const y = top + r * h;
    if (stage === "none" || r >= shown) {
      p.round(columns.x(first), y, columns.x(T) - columns.x(first) - 1, h - gap, 2, { stroke: p.theme.line });
      continue;
    }
    for (let t = first; t < T; t++) {
      const x = columns.x(t) + 1;
      const hidden = t > i && stage !== "scores";
      if (hidden) p.box(x, y, w, h - gap, p.theme.masked);
      else if (stage === "softmax") {
        p.box(x, y, w, h - gap, p.theme.card);
        p.box(x, y, w, h - gap, p.theme.q, shadeOf(square.at(i, t)));
      } else p.box(x, y, w, h - gap, p.theme.q, 0.08 + 0.62 * ((scores[r][t] - scores.low) / scores.span));
    }
    if (columns.fold && stage === "softmax") {
      p.box(LABELS + 1, y, columns.fold - 6, h - gap, p.theme.card);
      p.box(LABELS + 1, y, columns.fold - 6, h - gap, p.theme.q, shadeOf(square.folded(i, first)));
    }
  }
}

// Small weights must still be seen: the square root, on a scale from 0 to 1.
const shadeOf = (weight) => Math.sqrt(Math.min(1, Math.max(0, weight)));

// Scores of every pair in view, also of those that the mask will hide; kept for the head they belong to.
function squareScores(scene) {
  const { store, state, T, regions } = scene;
  const slab = store.slab(state.layer, state.head, T);
  if (!slab) return null;
  const first = regions.columns.first;
  const key = [store.key, state.layer, state.head, first, T].join();
  if (squareScores.key !== key) {
    const all = [];
    let low = Infinity;
    let high = -Infinity;
    for (let i = first; i < T; i++) {
      const row = scoresOfRow(slab, i, T, store.model.D);
      for (let t = first; t < T; t++) {
        low = Math.min(low, row[t]);
        high = Math.max(high, row[t]);
      }
      all.push(row);
    }
    all.low = low;
    all.span = high - low || 1;
    squareScores.key = key;
    squareScores.value = all;
  }
  return squareScores.value;
}

// What each position of the prompt expects next; only the last one is used. Vertical under narrow columns.
function drawPredictions(p, scene) {
  const { regions, pass, state, T } = scene;
  const { columns, predictions } = regions;
  if (!predictions || !pass.predictions) return;
  const { y } = predictions;
  p.text(words.plain("predictions"), 0, y + 22, { colour: p.theme.mut, most: LABELS - 4 });
  p.faded(emphasis(state.substep, "next", "ghost"), () => {
    for (let t = columns.first; t < T; t++) {
      const used = t === T - 1;
      const x = columns.x(t);
      const style = used ? { stroke: p.theme.fg, width: 2 } : { stroke: p.theme.line, dash: [3, 3] };
      p.round(x + 1, y + 2, columns.width - 3, 44, 8, { fill: used ? p.theme.card : undefined, ...style });
      const colour = used ? p.theme.fg : p.theme.mut;
      const label = pass.predictions[t][0];
      const options = { size: 10.5, mono: true, align: "center", colour, weight: used ? 700 : 400 };
      if (columns.width >= 28) p.text(label, x + columns.width / 2 - 0.5, y + 28, { ...options, most: columns.width - 6 });
      else drawUpright(p, label, x + columns.width / 2, y + 24, options);
      if (!used) p.line(x + 5, y + 24, x + columns.width - 6, y + 24, p.theme.mut, 0.8);
    }
  });
}

function drawUpright(p, label, x, y, options) {
  p.ctx.save();
  p.ctx.translate(x, y);
  p.ctx.rotate(-Math.PI / 2);
  p.text(label, 0, 3.5, { ...options, size: 10, most: 40 });
  p.ctx.restore();
}
