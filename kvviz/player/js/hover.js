// What lies under the pointer, in words, with exact values of three digits.

// Lines of text for a point of the stage in design pixels, or null.
function describe(scene, x, y) {
  if (!scene.pass) return null;
  if (scene.state.opened === "head") return describeHead(scene, x, y);
  const { regions, store, T } = scene;
  const { columns, cache, square, bars, lanes, predictions } = regions;
  const t = columns.at(x);
  if (t === null || t >= T) return null;
  const within = (r) => r && y >= r.y && y < r.y + r.h;
  if (t === -1) {
    return y < cache.y + cache.h + 400
      ? [words.plain("hover_fold", { last: columns.first - 1, positions: integer(columns.first) })]
      : null;
  }
  if (y < cache.y - 16) return describeToken(scene, t);
  if (within(cache)) return scene.state.opened === "layer" ? describeLayerCell(scene, t, y) : describeCell(scene, t, y);
  if (within(predictions) && scene.pass.predictions) {
    const [label, p] = scene.pass.predictions[t];
    return [words.plain("hover_prediction", { position: t, token: label, probability: percent(p) })];
  }
  if (within(square)) return describeWeight(scene, t, queryRow(scene, y));
  if (bars && y >= bars.y && y < bars.y + bars.h + 13) return describeWeight(scene, t, T - 1);
  if (within(lanes)) {
    const second = y > lanes.y + LANE + 2;
    const name = second
      ? t >= scene.newFrom
        ? "hover_lane_new"
        : "hover_lane_again"
      : t >= scene.newFrom
        ? "hover_lane_new"
        : "hover_lane_read";
    return [words.plain(name, { position: t, token: short(store.labels[t]) })];
  }
  return null;
}

function describeToken(scene, t) {
  const { store } = scene;
  const source = words.plain(t < store.P ? "from_prompt" : "from_step", { step: t - store.P });
  const lines = [store.labels[t], words.plain("hover_token", { position: t, id: integer(store.ids[t]), source })];
  const { predictions } = store.passes[0];
  if (predictions && t < store.P) {
    const [label, p] = predictions[t];
    lines.push(words.plain("hover_prediction", { position: t, token: label, probability: percent(p) }));
  }
  const group = store.groups.find(([start, end]) => t >= start && t < end);
  return group ? [...lines, words.plain("hover_group", { characters: group[2] })] : lines;
}

function since(scene, t) {
  const step = t < scene.store.P ? 0 : t - scene.store.P + 1;
  const name = t >= scene.newFrom ? "hover_new" : "hover_reused";
  return words.plain(name, { step: step === 0 ? words.plain("prefill") : words.plain("decode_n", { step }) });
}

function describeCell(scene, t, y) {
  const { regions, store } = scene;
  const layer = clamp(Math.floor((y - regions.cache.y) / regions.row), 0, store.model.L - 1);
  if (y >= regions.cache.y + regions.row * store.model.L) return null;
  return [
    words.plain("hover_cell", { layer, position: t, token: short(store.labels[t]) }),
    `‖K‖ ${digits3(store.norms.at(t, 2 * layer))}   ‖V‖ ${digits3(store.norms.at(t, 2 * layer + 1))}`,
    since(scene, t),
  ];
}

function describeLayerCell(scene, t, y) {
  const { store, state, s } = scene;
  const norms = store.headnorms.get(state.layer);
  if (!norms || t >= norms.count) return null;
  const { g, head, overKv } = headAt(scene, y);
  const where = words.plain(store.model.H === store.model.Hkv ? "head_n" : "kv_head_n", { head: g });
  const lines = [
    words.plain("hover_head_cell", { layer: state.layer, head: where, position: t, token: short(store.labels[t]) }),
  ];
  if (overKv)
    lines.push(`‖K‖ ${digits3(norms.at(t, 2 * g))}   ‖V‖ ${digits3(norms.at(t, 2 * g + 1))}`, since(scene, t));
  else {
    const weights = store.weights(state.layer, head, s);
    const outside = outsideWindow(scene, t, scene.T - 1);
    if (outside) lines.push(outside);
    else if (weights)
      lines.push(words.plain("hover_weight", { head, query: scene.T - 1, key: t, weight: digits3(weights(t)) }));
  }
  return lines;
}

// Why the query at a position does not look at a key that is stored, or null where it does.
function outsideWindow({ store, state }, key, query) {
  if (key >= store.firstSeen(state.layer, query)) return null;
  return words.plain("hover_window", { window: integer(store.windowOf(state.layer)) });
}

function describeWeight(scene, t, query) {
  const { store, state, T } = scene;
  if (query === null) return null;
  const lines = [
    words.plain("hover_pair", { query, a: short(store.labels[query]), key: t, b: short(store.labels[t]) }),
  ];
  if (t > query) return [...lines, words.plain(query < store.P ? "hover_masked" : "hover_later")];
  const outside = outsideWindow(scene, t, query);
  if (outside) return [...lines, outside];
  const slab = store.slab(state.layer, state.head, T);
  if (slab) lines.push(`Q·K/${divisor(store.model)} ${digits3(scoresOfRow(slab, query, query + 1, store.model)[t])}`);
  const pass = query < store.P ? 0 : query - store.P + 1;
  const square = pass ? null : store.square(state.layer, state.head);
  const weights = pass ? store.weights(state.layer, state.head, pass) : square && ((key) => square.at(query, key));
  if (weights) lines.push(words.plain("hover_softmax", { weight: digits3(weights(t)) }));
  return lines;
}

function queryRow(scene, y) {
  const { first, rows, h, top } = squareRows(scene);
  const r = Math.floor((y - top) / h);
  return r >= 0 && r < rows ? first + r : null;
}

function describeHead(scene, x, y) {
  const values = headValues(scene);
  if (!values) return null;
  const { store, T } = scene;
  const g = headGeometry(scene);
  const dimension = (left) =>
    x >= left && x < left + g.block ? Math.min(g.D - 1, Math.floor((x - left) / g.cell)) : null;
  if (y >= 2 && y < 24) {
    const d = dimension(HEAD_LEFT);
    return d === null ? null : [`Q[${T - 1}, ${d}] = ${digits3(values.q[d])}`];
  }
  if (y >= g.ySum && y < g.ySum + 20) {
    const d = dimension(g.xV);
    return d === null ? null : [`Σ[${d}] = ${digits3(values.sum[d])}`];
  }
  const t = g.rows.first + Math.floor((y - g.yOf(g.rows.first)) / g.rows.row);
  if (t < g.rows.first || t >= T) return null;
  const token = words.plain("hover_position", { position: t, token: short(store.labels[t]) });
  const k = dimension(HEAD_LEFT);
  if (k !== null) return [`K[${t}, ${k}] = ${digits3(values.k(t)[k])}`, token, since(scene, t)];
  const v = dimension(g.xV);
  if (v !== null) return [`V[${t}, ${v}] = ${digits3(values.v(t)[v])}`, token, since(scene, t)];
  if (x >= g.xScore && x < g.xV) {
    return [
      token,
      `Q·K/${divisor(scene.store.model)} ${digits3(values.scores[t])}`,
      outsideWindow(scene, t, T - 1) || words.plain("hover_softmax", { weight: digits3(values.weights(t)) }),
    ];
  }
  return null;
}

class Tip {
  constructor(element, root) {
    this.element = element;
    this.root = root;
  }

  // `x`, `y`: pointer in CSS pixels of the root. The tip keeps inside it.
  show(lines, x, y) {
    if (!lines) return this.hide();
    this.element.replaceChildren(...lines.map((line) => make("div", "", null, line)));
    this.element.hidden = false;
    const { offsetWidth: w, offsetHeight: h } = this.element;
    this.element.style.left = `${clamp(x + 14, 0, Math.max(0, this.root.clientWidth - w - 2))}px`;
    this.element.style.top = `${y + 18 + h > this.root.clientHeight ? y - h - 8 : y + 18}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}
