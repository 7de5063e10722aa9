// One layer opened in place: its KV heads by positions, and under each the query heads that read it.

// A group is one KV head and its query heads. Heights add up to the room that the cache had.
function layerGroups(scene) {
  const { regions, store } = scene;
  const { H, Hkv } = store.model;
  const shared = H / Hkv;
  const h = Math.min(regions.cache.h / Hkv, 78);
  const gap = h >= 24 ? 4 : h >= 12 ? 2.5 : 1;
  const kv = (h - gap) * (shared > 1 ? 0.45 : 0.64);
  const strip = (h - gap - kv) / shared;
  return { h, kv, strip, shared, top: regions.cache.y };
}

function drawLayer(p, scene) {
  const { regions, store, state, s, T, newFrom } = scene;
  const { columns } = regions;
  const { layer } = state;
  const norms = store.headnorms.get(layer);
  const groups = layerGroups(scene);
  const w = columns.width - Math.max(2, columns.width / 9);
  if (!norms || norms.count < T) {
    p.text(words.plain("fetching"), LABELS + 4, groups.top + 16, { colour: p.theme.mut });
    return;
  }
  const most = largestNorms(norms, T, store.model.Hkv);
  for (let g = 0; g < store.model.Hkv; g++) {
    const y = groups.top + g * groups.h;
    const half = groups.kv / 2;
    const cell = (t, x, width, dim = 1) => {
      const shade = shades(scene, t >= newFrom);
      p.box(x, y, width, half, p.theme.k, dim * shade.k * tint(norms.at(t, 2 * g), most[0]));
      p.box(x, y + half, width, half, p.theme.v, dim * shade.v * tint(norms.at(t, 2 * g + 1), most[1]));
    };
    for (let t = columns.first; t < T; t++) cell(t, columns.x(t) + 1, w);
    const slivers = Math.min(columns.first, 18);
    for (let i = 0; i < slivers; i++) {
      const width = (columns.fold - 6) / slivers;
      cell(Math.floor((i * columns.first) / slivers), LABELS + 1 + i * width, width * 0.7, 0.8);
    }
    for (let q = 0; q < groups.shared; q++) drawHeadStrip(p, scene, groups, g, q);
    drawGroupName(p, scene, groups, g);
    const from = Math.max(newFrom, columns.first);
    p.faded(shades(scene, true).outline, () => {
      const style = { stroke: p.theme.fg, width: 1.2 };
      if (T - from > 30) p.round(columns.x(from) + 0.5, y, columns.x(T) - columns.x(from) - 1, groups.kv, 2, style);
      else for (let t = from; t < T; t++) p.round(columns.x(t) + 1, y, w, groups.kv, 2, style);
    });
    const mine = Math.floor(state.head / groups.shared) === g;
    if (mine) {
      const right = columns.x(T) - LABELS + 3;
      p.round(LABELS - 2, y - 1.5, right, groups.h, 4, { stroke: p.theme.q, width: 1.6 });
    }
  }
}

function largestNorms(norms, T, Hkv) {
  const most = [0, 0];
  for (let t = 0; t < T; t++)
    for (let g = 0; g < Hkv; g++)
      for (const half of [0, 1]) most[half] = Math.max(most[half], norms.at(t, 2 * g + half));
  return most;
}

// One query head's attention over the columns, as intensity.
function drawHeadStrip(p, scene, groups, g, q) {
  const { regions, store, state, s, T } = scene;
  const { columns } = regions;
  const head = g * groups.shared + q;
  const weights = store.weights(state.layer, head, s);
  const y = groups.top + g * groups.h + groups.kv + q * groups.strip + 0.75;
  const h = groups.strip - 1;
  const w = columns.width - Math.max(2, columns.width / 9);
  const seen = store.firstSeen(state.layer, T - 1);
  if (!weights || h < 0.8) return;
  p.faded(emphasis(state.substep, "attention"), () => {
    for (let t = columns.first; t < Math.min(T, seen); t++) p.box(columns.x(t) + 1, y, w, h, p.theme.masked);
    for (let t = Math.max(columns.first, seen); t < T; t++) {
      p.box(columns.x(t) + 1, y, w, h, p.theme.card);
      p.box(columns.x(t) + 1, y, w, h, p.theme.q, shadeOf(weights(t)));
    }
    if (columns.fold && seen >= columns.first) p.box(LABELS + 1, y, columns.fold - 6, h, p.theme.masked);
    else if (columns.fold) {
      let sum = 0;
      for (let t = 0; t < columns.first; t++) sum += weights(t);
      p.box(LABELS + 1, y, columns.fold - 6, h, p.theme.q, shadeOf(sum));
    }
  });
}

// "head 3", or where query heads share: "KV 0" and the heads that read it.
function drawGroupName(p, scene, groups, g) {
  const { state } = scene;
  const y = groups.top + g * groups.h;
  const first = g * groups.shared;
  const last = first + groups.shared - 1;
  const mine = state.head >= first && state.head <= last;
  const size = groups.h >= 15 ? 12 : 10;
  if (groups.h < 11 && !mine && g % 5) return;
  const style = { size, align: "right", weight: mine ? 700 : 400, colour: mine ? p.theme.fg : p.theme.mut };
  if (groups.shared === 1) {
    p.text(words.plain("head_n", { head: g }), LABELS - 10, y + groups.h / 2 + size * 0.3, style);
    return;
  }
  p.text(words.plain("kv_head_n", { head: g }), LABELS - 10, y + groups.kv / 2 + size * 0.35, style);
  if (groups.strip >= 9) {
    for (let q = 0; q < groups.shared; q++) {
      const chosen = first + q === state.head;
      const middle = y + groups.kv + (q + 0.5) * groups.strip + 3.5;
      p.text(words.plain("q_head_n", { head: first + q }), LABELS - 10, middle, {
        size: 10,
        align: "right",
        weight: chosen ? 700 : 400,
        colour: chosen ? p.theme.qt : p.theme.mut,
      });
    }
  } else if (groups.h >= 26) {
    const middle = y + groups.kv + (groups.h - groups.kv) / 2 + 2;
    p.text(words.plain("q_heads", { first, last }), LABELS - 10, middle, {
      size: 10,
      align: "right",
      colour: p.theme.qt,
    });
  }
}

// Which query head of an opened layer lies at this height of the stage.
function headAt(scene, y) {
  const groups = layerGroups(scene);
  const g = clamp(Math.floor((y - groups.top) / groups.h), 0, scene.store.model.Hkv - 1);
  const within = y - groups.top - g * groups.h - groups.kv;
  const q = within < 0 ? 0 : clamp(Math.floor(within / groups.strip), 0, groups.shared - 1);
  return { g, head: g * groups.shared + q, overKv: within < 0 };
}
