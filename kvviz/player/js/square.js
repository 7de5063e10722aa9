// Prefill's Tq x T square in the columns of the grid: scores, then the mask, then the weights.

// Heights of a row where rows are added step by step: they stand still until the next is needed.
const ROW_HEIGHTS = [8, 6, 4, 3, 2];

// Which queries are drawn, and where: those in view, as high as they can be.
function squareRows(scene) {
  const { regions, T, s, mode } = scene;
  const { columns, square } = regions;
  const queries = s === 0 ? T : T - 1; // later the current one stands below, as bars
  if (mode === "prefill" || !regions.bars) {
    const rows = queries - columns.first;
    const h = Math.min(square.h / rows, columns.width);
    return { first: columns.first, rows, h, top: square.y + square.h - rows * h };
  }
  const h = ROW_HEIGHTS.find((height) => queries * height <= square.h) || ROW_HEIGHTS[ROW_HEIGHTS.length - 1];
  const rows = Math.min(queries - (s === 0 ? columns.first : 0), Math.floor(square.h / h));
  return { first: queries - rows, rows, h, top: square.y };
}

function drawSquare(p, scene) {
  const { regions, store, state, T } = scene;
  const { substep } = state;
  if (!regions.bars) drawAttentionName(p, scene, regions.square.y + regions.square.h - 46);
  const square = store.square(state.layer, state.head);
  const stage = ["softmax", "mask", "scores"].find((name) => reached(substep, name)) || "none";
  const scores = stage === "scores" || stage === "mask" ? squareScores(scene) : null;
  if (!square || ((stage === "scores" || stage === "mask") && !scores)) {
    p.text(words.plain("fetching"), LABELS + 4, regions.square.y + 14, { colour: p.theme.mut });
    return;
  }
  p.faded(emphasis(substep, "attention", "q"), () => {
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
    if (reached(state.substep, "qkv")) p.box(LABELS - 7, y, 4, h - gap, p.theme.q); // the query that this row belongs to
    if (stage === "none" || r >= shown) {
      p.round(columns.x(columns.first), y, columns.x(T) - columns.x(columns.first) - 1, h - gap, 2, { stroke: p.theme.line });
      continue;
    }
    const seen = scene.store.firstSeen(state.layer, i);
    for (let t = columns.first; t < T; t++) { // all that is not folded, also where the first rows have no room
      const x = columns.x(t) + 1;
      const hidden = (t > i || t < seen) && stage !== "scores";
      if (hidden) p.box(x, y, w, h - gap, p.theme.masked);
      else if (stage === "softmax") {
        p.box(x, y, w, h - gap, p.theme.card);
        p.box(x, y, w, h - gap, p.theme.q, shadeOf(square.at(i, t)));
      } else p.box(x, y, w, h - gap, p.theme.q, 0.06 + 0.64 * ((scores[r].values[t] - scores[r].low) / scores[r].span));
    }
    if (columns.fold && seen >= columns.first && stage !== "scores") {
      p.box(LABELS + 1, y, columns.fold - 6, h - gap, p.theme.masked);
    } else if (columns.fold && stage === "softmax") {
      p.box(LABELS + 1, y, columns.fold - 6, h - gap, p.theme.card);
      p.box(LABELS + 1, y, columns.fold - 6, h - gap, p.theme.q, shadeOf(square.folded(i, columns.first)));
    }
  }
}

// The queries before the current one, each row as it was in its own pass: asked once, and not kept.
function drawEarlierQueries(p, scene) {
  const { regions, store, state, T } = scene;
  const { columns } = regions;
  const { first, rows, h, top } = squareRows(scene);
  const gap = h >= 6 ? 1 : 0.5;
  const w = columns.width - (columns.width >= 20 ? 2.5 : 1);
  const square = store.square(state.layer, state.head);
  if (!square) return;
  p.text(words.plain("earlier_queries"), 0, top + 10, { colour: p.theme.mut, most: LABELS - 6 });
  p.text(words.plain("earlier_used"), 0, top + 26, { colour: p.theme.mut, most: LABELS - 6 });
  p.faded(0.5 * emphasis(state.substep, "attention"), () => {
    for (let r = 0; r < rows; r++) {
      const i = first + r;
      const y = top + r * h;
      const weights = i < store.P ? null : store.weights(state.layer, state.head, i - store.P + 1);
      if (i >= store.P ? !weights : i < square.first) continue;
      const seen = store.firstSeen(state.layer, i);
      const from = Math.max(columns.first, i < store.P ? square.first : 0);
      if (seen > from) p.box(columns.x(from) + 1, y, columns.x(seen) - columns.x(from) - 2, h - gap, p.theme.masked);
      for (let t = Math.max(from, seen); t <= Math.min(i, T - 1); t++)
        p.box(
          columns.x(t) + 1,
          y,
          w,
          h - gap,
          p.theme.q,
          0.06 + 0.94 * shadeOf(weights ? weights(t) : square.at(i, t)),
        );
      const hidden = columns.x(Math.min(T, i < store.P ? store.P : i + 1)) - columns.x(Math.max(i + 1, columns.first));
      if (hidden > 0) p.box(columns.x(Math.max(i + 1, columns.first)) + 1, y, hidden - 2, h - gap, p.theme.masked);
      if (columns.fold && seen >= columns.first) p.box(LABELS + 1, y, columns.fold - 6, h - gap, p.theme.masked);
      else if (columns.fold) {
        let sum = 0;
        if (weights) for (let t = 0; t < columns.first; t++) sum += weights(t);
        else sum = square.folded(i, columns.first);
        p.box(LABELS + 1, y, columns.fold - 6, h - gap, p.theme.q, 0.06 + 0.94 * shadeOf(sum));
      }
    }
  });
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
    for (let i = first; i < T; i++) {
      const values = scoresOfRow(slab, i, T, store.model);
      const seen = values.slice(first);
      const low = Math.min(...seen);
      all.push({ values, low, span: Math.max(...seen) - low || 1 }); // each row on its own scale, as softmax takes it
    }
    squareScores.key = key;
    squareScores.value = all;
  }
  return squareScores.value;
}

// What each position of the prompt expects next; only the last one is used. Vertical under narrow columns.
function drawPredictions(p, scene) {
  const { regions, store, pass, state, T } = scene;
  const { columns, predictions } = regions;
  if (!predictions || !pass.predictions) return;
  const { y } = predictions;
  const done = reached(state.substep, "logits");
  p.text(words.plain("predictions"), 0, y + 22, { colour: p.theme.mut, most: LABELS - 4 });
  p.text(words.plain("predictions_used", { P: integer(store.P) }), 0, y + 38, {
    colour: p.theme.mut,
    size: 10.5,
    most: LABELS - 4,
  });
  p.faded(emphasis(state.substep, "next", "ghost"), () => {
    for (let t = columns.first; t < T; t++) {
      const used = t === T - 1 && reached(state.substep, "choose");
      const x = columns.x(t);
      const style = used ? { stroke: p.theme.fg, width: 2 } : { stroke: p.theme.line, dash: [3, 3] };
      p.round(x + 1, y + 2, columns.width - 3, 44, 8, { fill: used ? p.theme.card : undefined, ...style });
      const colour = used ? p.theme.fg : p.theme.mut;
      if (!done) continue;
      const label = pass.predictions[t][0];
      const options = { size: 10.5, mono: true, align: "center", colour, weight: used ? 700 : 400 };
      if (columns.width >= 28)
        p.text(label, x + columns.width / 2 - 0.5, y + 28, { ...options, most: columns.width - 6 });
      else drawUpright(p, label, x + columns.width / 2, y + 24, options);
      if (t < T - 1 && reached(state.substep, "choose"))
        p.line(x + 5, y + 24, x + columns.width - 6, y + 24, p.theme.mut, 0.8);
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
