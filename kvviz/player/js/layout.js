// Where things stand, in design pixels: a player 640 high, scaled as a whole. No drawing here.

const LABELS = 92; // left column of names
const SIDE = 236; // cards and the gap before them
const FOLD = 50; // the column that stands for the folded positions
const WIDTHS = [40, 28, 20, 14]; // a column's width; the next is taken when the positions no longer fit
const WIDE_WIDTHS = [64, 52, ...WIDTHS]; // where the positions don't grow
const STEP_OF_FOLD = 8; // fold this many at a time, so that columns stand still in between
const CHROME = 142; // header, pipeline, proofs, controls

const STRIP = 50; // token chips
const CACHE_TOP = 82;
const CARDS = 446; // the side cards, which the stage is never shorter than when they stand beside it
const LANE = 15;
const BARS = 58; // attention of one query, where the square of all stands above it

// Columns for T positions and the one to come. `first` is the oldest not folded.
function columnsFor(available, T, widths = WIDTHS) {
  const room = Math.max(available, 200);
  for (const width of widths) {
    const slots = Math.floor(room / width);
    if (T + 1 <= slots) return makeColumns(width, 0, 0, slots);
  }
  const width = WIDTHS[WIDTHS.length - 1];
  const slots = Math.min(240, Math.floor((room - FOLD) / width));
  const first = Math.ceil((T + 1 - slots) / STEP_OF_FOLD) * STEP_OF_FOLD;
  return makeColumns(width, first, FOLD, slots);
}

function makeColumns(width, first, fold, slots) {
  return {
    width,
    first,
    fold,
    slots,
    x: (t) => LABELS + fold + (t - first) * width, // left edge of a position's column
    at: (x) => {
      if (fold && x >= LABELS && x < LABELS + fold) return -1; // the fold itself
      const t = first + Math.floor((x - LABELS - fold) / width);
      return x < LABELS || t < first ? null : t;
    },
  };
}

// Regions of the stage by mode. `height` is what the whole player may take. Attention is a `square` of
// queries by keys, `bars` of the current query, or where there is room both, one over the other.
function regionsFor({ width, height, wide, mode, L, T, prefill }) {
  const stage = height - CHROME;
  const gridWidth = wide ? width - SIDE : width;
  const columns = columnsFor(gridWidth - LABELS - 6, T, mode === "prefill" ? WIDE_WIDTHS : WIDTHS);
  const lanes = 2 * LANE + 4;
  if (mode === "prefill") {
    const most = Math.min(140, stage * 0.28);
    const row = Math.min(20, most / L);
    const top = CACHE_TOP + row * L + 12;
    const predictions = 52;
    const square = { y: top, h: Math.min(stage - top - predictions - 8, 300) };
    return {
      stage,
      width,
      gridWidth,
      columns,
      row,
      wide,
      square,
      cache: { y: CACHE_TOP, h: row * L },
      bars: null,
      predictions: { y: stage - predictions, h: predictions },
      lanes: null,
    };
  }
  const numbers = 13;
  const least = 44 + numbers + 10 + lanes + 14; // attention with its numbers, gaps, lanes
  const row = Math.min(26, Math.min(300, stage - CACHE_TOP - least) / L);
  const cache = { y: CACHE_TOP, h: Math.max(row * L, 120) }; // an opened layer needs room even in a shallow model
  const attentionTop = cache.y + cache.h + 12;
  const used = wide ? Math.min(stage, Math.max(CARDS, attentionTop + 90 + numbers + 10 + lanes)) : stage;
  const room = clamp(used - attentionTop - numbers - 10 - lanes, 40, 140);
  const both = room >= 110;
  const whole = { y: attentionTop, h: room };
  const lanesTop = attentionTop + room + numbers + 10;
  return {
    stage: wide ? used : lanesTop + lanes + 2,
    width,
    gridWidth,
    columns,
    row,
    wide,
    cache,
    square: both ? { y: attentionTop, h: room - BARS - 8 } : prefill ? whole : null,
    bars: both ? { y: attentionTop + room - BARS, h: BARS } : prefill ? null : whole,
    lanes: { y: lanesTop, h: lanes },
    predictions: null,
  };
}

// The rows of one opened head: as tall as they can be, then the oldest fold.
function headRows(height, T) {
  for (const row of [20, 17, 14, 12]) {
    const slots = Math.floor(height / row);
    if (T <= slots) return { row, first: 0, slots };
  }
  const slots = Math.floor(height / 12) - 2; // the fold takes two rows' height
  const first = Math.ceil((T - slots) / 4) * 4;
  return { row: 12, first, slots, fold: 24 };
}

// Which regions a part of the pass works in. The others are muted while it is lit.
const PARTS = [
  { name: "embed", lit: ["tokens"] },
  { name: "qkv", lit: ["tokens", "new", "lanes", "q"] },
  { name: "append", lit: ["cache", "new", "shapes"] },
  { name: "scores", lit: ["attention", "keys", "q"] },
  { name: "mask", lit: ["attention", "q"] },
  { name: "softmax", lit: ["attention"] },
  { name: "values", lit: ["attention", "valuerows"] },
  { name: "logits", lit: ["next"] },
  { name: "choose", lit: ["next", "ghost"] },
  { name: "kept", lit: ["cache", "new", "shapes"] },
];

// Opacity of a region under the part lit now, if any.
function emphasis(substep, ...regions) {
  if (substep === null) return 1;
  return regions.some((r) => PARTS[substep].lit.includes(r)) ? 1 : 0.28;
}

// Whether a part of the pass has been done: all have, when none is lit.
function reached(substep, name) {
  return substep === null || substep >= PARTS.findIndex((part) => part.name === name);
}
