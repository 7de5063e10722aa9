// The sentence over the picture: this pass, or the part of it that is lit, in this run's words and numbers.

function sayPass(element, scene) {
  const [name, values] = sentence(scene);
  const text = words.plain(name, values);
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  words.fill(element, name, values);
}

// [section, values] for the scene.
function sentence(scene) {
  const { store, pass, state, s, T } = scene;
  const { L, H, Hkv, D, width, vocab } = store.model;
  if (!pass)
    return [scene.canExtend && scene.mode === "run" ? "say_none_press" : "say_none", { tokens: integer(store.P) }];
  const decode = s > 0;
  const token = short(store.labels[T - 1]);
  const values = {
    token,
    T: integer(T),
    old: integer(T - 1),
    P: integer(store.P),
    layers: L,
    heads: H,
    kv_heads: Hkv,
    D,
    divisor: divisor(store.model),
    width: integer(width),
    vocab: integer(vocab),
    position: T - 1,
    last: store.P - 1,
    layer: state.layer,
    head: state.head,
    rows: integer(pass.rows),
    id: integer(store.ids[T - 1]),
    bytes: integer(pass.bytes),
    unused: integer(store.P - 1),
  };
  // Where the layer's window ends before the oldest position, the query at T - 1 sees less than is stored.
  const window = store.windowOf(state.layer);
  const outside = store.firstSeen(state.layer, T - 1);
  Object.assign(values, { window: integer(window), seen: integer(T - outside), outside: integer(outside) });
  const kind = decode ? "decode" : store.P === 1 ? "one" : "prefill";
  if (state.substep === null) {
    if (state.opened === "layer") return [Hkv === H ? "say_layer" : "say_layer_shared", { ...values, group: H / Hkv }];
    if (state.opened === "head")
      return [decode ? (outside ? "say_head_window" : "say_head") : "say_head_prefill", values];
    if (decode && outside) return ["say_decode_window", values];
    return [`say_${kind}`, values];
  }
  const part = PARTS[state.substep].name;
  const rows = kind === "prefill" ? "prefill" : "decode"; // a prompt of one token is one row, like a decode step
  if (part === "embed") {
    const how = store.model.positions === "rotary" ? "rotary" : "learned";
    return [`say_embed_${how}_${rows}`, values];
  }
  if (part === "qkv") return [`say_qkv_${Hkv === H ? "same" : "shared"}_${rows}`, values];
  if (part === "append") return [decode ? "say_append_decode" : "say_append_prefill", values];
  if (part === "scores" || part === "softmax") return sayStrongest(scene, part, values, outside);
  if (part === "mask") return sayMask(rows, store.P, outside, values);
  if (part === "values") return [outside ? "say_values_window" : "say_values", values];
  if (part === "logits")
    return ["say_logits", { ...values, best: short(pass.top[0][0]), probability: percent(pass.top[0][1]) }];
  if (part === "choose") return sayChoice(scene, values);
  return [
    "say_kept",
    { ...values, predictions: integer(store.P - 1), square: `${integer(store.P)} × ${integer(store.P)}` },
  ];
}

// What is hidden: in prefill's square every key that comes later, in a layer with a window also what lies before it.
function sayMask(rows, P, outside, values) {
  if (rows === "decode") return [outside ? "say_mask_decode_window" : "say_mask_decode", values];
  const later = (P * (P - 1)) / 2;
  const before = (outside * (outside + 1)) / 2; // 1 for the first query that has any, one more for each after it
  const counts = { hidden: integer(later + before), all: integer(P ** 2), later: integer(later) };
  return [before ? "say_mask_prefill_window" : "say_mask_prefill", { ...values, ...counts, outside: integer(before) }];
}

function sayStrongest(scene, part, values, outside) {
  const { store, state, s, T } = scene;
  const scores = part === "scores" ? scoresOf(scene) : null;
  const weights = store.weights(state.layer, state.head, s);
  const f = part === "scores" ? scores && ((t) => scores[t]) : weights;
  if (!f) return ["fetching", {}];
  const key = largest(T, f);
  const value = part === "scores" ? digits3(f(key)) : percent(f(key));
  const kind = s > 0 ? "decode" : "prefill";
  const name = part === "softmax" && kind === "decode" && outside ? "say_softmax_decode_window" : `say_${part}_${kind}`;
  return [name, { ...values, key, key_token: short(store.labels[key]), value }];
}

function sayChoice(scene, values) {
  const { store, pass, T } = scene;
  const more = {
    ...values,
    chosen: short(pass.token),
    next: T,
    probability: percent(pass.p),
    temperature: store.sampling.temperature,
  };
  if (pass.end) return ["say_choose_end", more];
  return [store.sampling.greedy ? "say_choose_greedy" : "say_choose_sampled", more];
}

// What the canvas shows, for those who can't see it.
function describePicture(scene) {
  const { store, pass, state, s, T } = scene;
  if (!pass) return words.plain("say_none", { tokens: integer(store.P) });
  const values = {
    layers: store.model.L,
    T: integer(T),
    layer: state.layer,
    head: state.head,
    fresh: integer(T - scene.newFrom),
  };
  if (state.opened === "head") return words.plain("alt_head", { ...values, D: store.model.D });
  const weights = store.weights(state.layer, state.head, s);
  if (!weights) return words.plain("alt_cache", values);
  const key = largest(T, weights);
  return words.plain("alt_grid", {
    ...values,
    query: T - 1,
    key,
    token: short(store.labels[key]),
    weight: percent(weights(key)),
  });
}
