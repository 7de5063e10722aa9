// The grid of positions: cache, attention of the current query, rows computed. All in the same columns.
// A scene is {store, pass, s, T, newFrom, regions, state}; see player.js.

const OUTSIDE = 14; // height of the hatching under keys outside a window, where bars would stand

// How strongly a norm is tinted, against the largest norm so far.
const tint = (value, most) => 0.22 + 0.78 * Math.min(1, most ? value / most : 0);

// Opacity of one row's K and V halves: reused ones are muted, and parts of the pass lift their own.
// A part before Q, K, V has no new rows yet; they get their outline when they are in the cache.
function shades(scene, isNew) {
  const { substep } = scene.state;
  const there = !isNew || reached(substep, "qkv");
  const base = !there ? 0 : isNew ? 1 : 0.5;
  const region = isNew ? ["cache", "new"] : ["cache"];
  return {
    k: base * emphasis(substep, ...region, "keys"),
    v: base * emphasis(substep, ...region, "valuerows"),
    outline: isNew && reached(substep, "append") ? emphasis(substep, ...region) : 0,
    empty: !there,
  };
}

function drawCache(p, scene) {
  const { regions, store, state, T, newFrom } = scene;
  const { columns, cache, row } = regions;
  const { L } = store.model;
  const most = [store.largest[0][T - 1], store.largest[1][T - 1]];
  const inset = row >= 16 ? 2.5 : row >= 9 ? 1.25 : 0.75;
  const w = columns.width - Math.max(2, columns.width / 9);
  const half = (row - 2 * inset) / 2;

  const shade = [shades(scene, false), shades(scene, true)];
  for (const [part, name] of ["k", "v"].entries()) {
    p.washed(p.theme[name], (wash) => {
      for (let t = columns.first; t < T; t++) {
        const strength = shade[Number(t >= newFrom)][name];
        const x = columns.x(t) + 1;
        for (let l = 0; l < L; l++) {
          const y = cache.y + l * row + inset + part * half;
          wash(x, y, w, half, strength * tint(store.norms.at(t, 2 * l + part), most[part]));
        }
      }
    });
  }
  if (columns.fold) drawFoldedCells(p, scene, most, inset, half);
  drawNewOutlines(p, scene, w, inset);
  drawEmpty(p, scene, w, inset);
  drawLayerNames(p, scene);
  const y = cache.y + state.layer * row;
  const right = columns.x(T) - columns.x(columns.first) + columns.fold + 3;
  p.faded(emphasis(state.substep, "cache", "new", "keys", "valuerows"), () =>
    p.round(LABELS - 2, y - 0.5, right, row + 1, 4, { stroke: p.theme.q, width: 1.6 }),
  );
}

// The folded positions, squeezed into their column: still one sliver each, as far as pixels go.
function drawFoldedCells(p, scene, most, inset, half) {
  const { regions, store } = scene;
  const { columns, cache, row } = regions;
  const shade = shades(scene, scene.newFrom < columns.first);
  const slivers = Math.min(columns.first, 18);
  const w = (columns.fold - 6) / slivers;
  for (let i = 0; i < slivers; i++) {
    const t = Math.floor((i * columns.first) / slivers);
    for (let l = 0; l < store.model.L; l++) {
      const y = cache.y + l * row + inset;
      p.box(LABELS + 1 + i * w, y, w * 0.7, half, p.theme.k, 0.8 * shade.k * tint(store.norms.at(t, 2 * l), most[0]));
      p.box(
        LABELS + 1 + i * w,
        y + half,
        w * 0.7,
        half,
        p.theme.v,
        0.8 * shade.v * tint(store.norms.at(t, 2 * l + 1), most[1]),
      );
    }
  }
}

// The outline that says "new": one box a cell, or one around the column where rows are thin.
function drawNewOutlines(p, scene, w, inset) {
  const { regions, store, T, newFrom } = scene;
  const { columns, cache, row } = regions;
  const alpha = shades(scene, true).outline;
  const from = Math.max(newFrom, columns.first);
  p.faded(alpha, () => {
    const style = { stroke: p.theme.fg, width: columns.width < 20 ? 1.1 : 1.5 };
    if (row < 12 || T - from > 60) {
      const x = columns.x(from);
      p.round(x + 0.5, cache.y, columns.x(T) - x - 1, row * store.model.L, 2, style);
      return;
    }
    const cells = [];
    for (let t = from; t < T; t++)
      for (let l = 0; l < store.model.L; l++)
        cells.push([columns.x(t) + 1, cache.y + l * row + inset, w, row - 2 * inset]);
    p.rounds(cells, 2, style);
  });
}

// Room for what comes: dotted cells up to the last column.
function drawEmpty(p, scene, w, inset) {
  const { regions, store, T } = scene;
  const { columns, cache, row } = regions;
  if (row < 12 || columns.width < 20) return;
  const { ctx } = p;
  p.faded(emphasis(scene.state.substep, "cache"), () => {
    ctx.strokeStyle = p.theme.line;
    ctx.lineWidth = 1;
    ctx.setLineDash([2, 3]);
    ctx.beginPath();
    const from = shades(scene, true).empty ? Math.max(scene.newFrom, columns.first) : T;
    for (let t = from; t < columns.first + columns.slots; t++)
      for (let l = 0; l < store.model.L; l++)
        ctx.rect(columns.x(t) + 1.5, cache.y + l * row + inset + 0.5, w - 1, row - 2 * inset - 1);
    ctx.stroke();
    ctx.setLineDash([]);
  });
}

function drawLayerNames(p, scene) {
  const { regions, store, state } = scene;
  const { cache, row } = regions;
  const every = row >= 12 ? 1 : 5;
  for (let l = 0; l < store.model.L; l++) {
    const chosen = l === state.layer;
    const near = Math.abs(l - state.layer) < every && !chosen && every > 1;
    if ((l % every && !chosen) || near) continue;
    const options = { align: "right", size: row >= 16 ? 12 : 10.5, weight: chosen ? 700 : 400 };
    const y = cache.y + l * row + row / 2 + options.size * 0.35;
    p.text(words.plain("layer_n", { layer: l }), LABELS - 10, y, {
      ...options,
      colour: chosen ? p.theme.fg : p.theme.mut,
    });
  }
}

// The name of the picture and which half is which, over the first layer.
function drawCacheTitle(p, scene) {
  const { opened, layer } = scene.state;
  const title = opened === "layer" ? words.plain("layer_opened_title", { layer }) : words.plain("cache_title");
  p.text(title, 0, CACHE_TOP - 5, { colour: p.theme.mut, most: LABELS - 32 });
  p.text("V", LABELS - 10, CACHE_TOP - 5, { colour: p.theme.vt, weight: 700, align: "right" });
  p.text("K", LABELS - 21, CACHE_TOP - 5, { colour: p.theme.kt, weight: 700, align: "right" });
}

function drawAttentionName(p, scene, y) {
  const { state, T } = scene;
  p.text(words.plain("attention_of"), 0, y + 11, { colour: p.theme.mut, most: LABELS - 4 });
  p.faded(emphasis(state.substep, "q", "attention"), () =>
    p.text(words.plain("query_at", { position: T - 1 }), 0, y + 28, { colour: p.theme.qt, weight: 650 }),
  );
  const where = words.plain("layer_head", { layer: state.layer, head: state.head });
  p.text(where, 0, y + 45, { colour: p.theme.mut, most: LABELS - 2 });
}

// How the current query (in prefill, the last) spread its attention, a bar a key; before softmax, its scores.
function drawAttention(p, scene) {
  const { regions, store, state, s, T } = scene;
  const { columns, bars } = regions;
  const floor = bars.y + bars.h;
  drawAttentionName(p, scene, floor - 46);
  p.line(LABELS, floor + 0.5, columns.x(T), floor + 0.5, p.theme.line);
  if (!reached(state.substep, "scores")) {
    if (reached(state.substep, "qkv")) drawQuery(p, scene, floor);
    return;
  }
  const weighted = reached(state.substep, "softmax");
  const weights = weighted ? store.weights(state.layer, state.head, s) : null;
  const scores = weighted ? null : scoresOf(scene);
  if (!weights && !scores) {
    p.text(words.plain("fetching"), LABELS + 4, floor - 8, { colour: p.theme.mut });
    return;
  }
  p.faded(emphasis(state.substep, "attention"), () => {
    if (scores) drawScoreBars(p, scene, scores);
    else drawWeightBars(p, scene, weights);
  });
}

// The query of this pass in its own column, before it has met a key.
function drawQuery(p, scene, floor) {
  const { columns } = scene.regions;
  const x = columns.x(scene.T - 1) + 1;
  const w = columns.width - Math.max(2, columns.width / 9);
  p.faded(emphasis(scene.state.substep, "q"), () => {
    p.round(x, floor - 20, w, 18, 2, { fill: p.theme.q, stroke: p.theme.fg, width: 1.5 });
    if (w >= 12) p.text("Q", x + w / 2, floor - 7, { size: 11, align: "center", weight: 700, colour: p.theme.bg });
  });
}

// Keys outside the layer's window: stored, and hidden from this query. Returns the first one that it sees.
function drawOutside(p, scene) {
  const { regions, store, state, T } = scene;
  const { columns, bars } = regions;
  const seen = store.firstSeen(state.layer, T - 1);
  const y = bars.y + bars.h - OUTSIDE;
  if (seen > columns.first)
    p.box(columns.x(columns.first) + 1, y, columns.x(seen) - columns.x(columns.first) - 2, OUTSIDE, p.theme.masked);
  if (columns.fold && seen >= columns.first) p.box(LABELS + 1, y, columns.fold - 6, OUTSIDE, p.theme.masked);
  return seen;
}

function drawWeightBars(p, scene, weights) {
  const { regions, T } = scene;
  const { columns, bars } = regions;
  const floor = bars.y + bars.h;
  const bar = (x, width, weight, label) => {
    const h = Math.max(1, weight * (bars.h - 10));
    p.round(x, floor - h, width, h, 2, { fill: p.theme.q });
    if (label)
      p.text(hundredths(weight), x + width / 2, floor + 12, { size: 10, align: "center", colour: p.theme.mut });
  };
  const inset = columns.width >= 28 ? 6 : columns.width >= 20 ? 4 : 2;
  const shown = new Set(strongest(T, weights, columns.width >= 24 ? T : 4));
  const seen = drawOutside(p, scene);
  for (let t = Math.max(columns.first, seen); t < T; t++)
    bar(columns.x(t) + inset, columns.width - 2 * inset - 1, weights(t), shown.has(t));
  if (columns.fold && seen < columns.first) {
    let sum = 0;
    for (let t = 0; t < columns.first; t++) sum += weights(t);
    bar(LABELS + 6, columns.fold - 16, sum, true);
  }
}

// Positions of the n largest weights, kept two columns apart so that their numbers don't touch.
function strongest(T, weights, n) {
  const order = [...Array(T).keys()];
  if (n >= T) return order;
  order.sort((a, b) => weights(b) - weights(a));
  const chosen = [];
  for (const t of order) {
    if (chosen.length === n) break;
    if (chosen.every((c) => Math.abs(c - t) > 1)) chosen.push(t);
  }
  return chosen;
}

function drawScoreBars(p, scene, scores) {
  const { regions, T } = scene;
  const { columns, bars } = regions;
  const floor = bars.y + bars.h;
  const seen = scores.slice(columns.first, T);
  const low = Math.min(...seen);
  const span = Math.max(...seen) - low || 1;
  const inset = columns.width >= 28 ? 6 : columns.width >= 20 ? 4 : 2;
  const from = reached(scene.state.substep, "mask") ? drawOutside(p, scene) : 0;
  for (let t = Math.max(columns.first, from); t < T; t++) {
    const h = 3 + ((scores[t] - low) / span) * (bars.h - 14);
    const x = columns.x(t) + inset;
    p.round(x + 0.5, floor - h, columns.width - 2 * inset - 2, h, 2, { stroke: p.theme.q, width: 1.4 });
    if (columns.width >= 28)
      p.text(minus(scores[t].toFixed(1)), columns.x(t) + columns.width / 2 - 1, floor + 12, {
        size: 10,
        align: "center",
        colour: p.theme.mut,
      });
  }
}

// Scaled Q·K of the current query against every key, from the head's own rows; null until they are here.
function scoresOf(scene) {
  const { store, state, T } = scene;
  const slab = store.slab(state.layer, state.head, T);
  return slab ? scoresOfRow(slab, T - 1, T, store.model) : null;
}

function scoresOfRow(slab, i, T, { D, scale }) {
  const scores = [];
  for (let t = 0; t < T; t++) {
    let sum = 0;
    for (let d = 0; d < D; d++) sum += slab.q.at(i, d) * slab.k.at(t, d);
    scores.push(sum * scale);
  }
  return scores;
}

// What Q·K is divided by, as one writes it: √D, but for models that have a number of their own.
function divisor({ D, scale }) {
  return Math.abs(scale * Math.sqrt(D) - 1) < 1e-3 ? `√${D}` : String(Number((1 / scale).toPrecision(3)));
}

// Which token rows the model computes in this pass: with the cache, and without.
function drawLanes(p, scene) {
  const { regions, state, s, T, newFrom } = scene;
  const { columns, lanes } = regions;
  const w = columns.width - Math.max(2, columns.width / 9);
  p.faded(emphasis(state.substep, "lanes"), () => {
    ["with_cache", "no_cache"].forEach((name, i) => {
      const y = lanes.y + i * (LANE + 4);
      const from = i === 0 ? newFrom : 0;
      const size = T - from >= 1000 ? 10.5 : 12;
      p.text(words.plain(name), 0, y + 11.5, { most: LABELS - 36 });
      p.text(integer(T - from), LABELS - 8, y + 11.5, {
        align: "right",
        size,
        weight: 700,
        colour: i && s ? p.theme.wt : p.theme.fg,
      });
      const cells = { read: [], fresh: [], again: [] };
      for (let t = columns.first; t < T; t++) {
        const kind = t < from ? "read" : t >= newFrom ? "fresh" : "again";
        cells[kind].push([columns.x(t) + 1, y + 0.5, w, LANE - 1]);
      }
      p.rounds(cells.read, 2, { stroke: p.theme.line });
      p.rounds(cells.fresh, 2, { fill: p.theme.fg, stroke: p.theme.fg });
      p.rounds(cells.again, 2, { fill: p.theme.wasted, stroke: p.theme.w });
      if (columns.fold) {
        const fresh = i === 0 && from < columns.first;
        const style =
          i === 0 && !fresh
            ? { stroke: p.theme.line }
            : { fill: s ? p.theme.wasted : p.theme.fg, stroke: s ? p.theme.w : p.theme.fg };
        p.round(LABELS + 1, y + 0.5, columns.fold - 6, LANE - 1, 2, style);
      }
    });
  });
}
