// Token chips over the columns, as elements: their text is text, whatever it says.

class Strip {
  constructor(element) {
    this.element = element;
    this.chips = [];
    this.shown = [];
  }

  render(scene, unit) {
    const wanted = scene.state.opened === "head" ? [] : this.wanted(scene);
    while (this.chips.length < wanted.length) {
      const chip = document.createElement("span");
      this.element.append(chip);
      this.chips.push(chip);
      this.shown.push({});
    }
    this.chips.forEach((chip, i) => this.apply(chip, this.shown[i], wanted[i], unit));
  }

  wanted(scene) {
    const { store, regions, state, s, T, newFrom } = scene;
    const { columns } = regions;
    const upright = columns.width < 40;
    const list = [];
    const dim = (...lit) => emphasis(state.substep, ...lit) < 1;
    if (columns.fold) {
      const text = `0…${columns.first - 1}`;
      list.push({ text, kind: "fold", x: LABELS + 1, w: columns.fold - 6, dim: dim("tokens"), upright: false });
    }
    for (let t = columns.first; t <= T && t < store.labels.length; t++) {
      const next = t === T;
      const kind = [
        t >= store.P ? "gen" : "",
        t >= newFrom && !next ? "new" : "",
        next ? "next" : "",
        next && scene.pass && scene.pass.end ? "end" : "",
      ];
      list.push({
        text: next && !reached(state.substep, "choose") ? "" : store.labels[t],
        kind: kind.filter(Boolean).join(" "),
        x: columns.x(t) + 1,
        w: columns.width - 3,
        dim: next ? dim("ghost") : t >= newFrom ? dim("tokens", "new") : dim("tokens"),
        upright,
        position: t,
      });
    }
    return list;
  }

  // Touch only what differs from what the chip shows.
  apply(chip, shown, want, unit) {
    if (!want) {
      if (shown.visible !== false) chip.hidden = true;
      shown.visible = false;
      return;
    }
    if (shown.visible !== true) {
      chip.hidden = false;
      shown.visible = true;
    }
    if (shown.text !== want.text) chip.textContent = shown.text = want.text;
    const single = [...want.text].length === 1; // one sign needs no turning
    const marks = { upright: want.upright, single, dim: want.dim };
    const kind = ["kvp-chip", want.kind, ...Object.keys(marks).filter((m) => marks[m])].join(" ");
    if (shown.kind !== kind) chip.className = shown.kind = kind;
    const place = `${want.x * unit}|${want.w * unit}`;
    if (shown.place !== place) {
      chip.style.left = `${want.x * unit}px`;
      chip.style.width = `${want.w * unit}px`;
      shown.place = place;
    }
    if (shown.position !== want.position) {
      chip.dataset.position = want.position === undefined ? "" : want.position;
      shown.position = want.position;
    }
  }
}

// Under the chips the positions; over them, while there is room, which are prompt and which generated.
function drawPositions(p, scene) {
  const { regions, store, state, T } = scene;
  const { columns } = regions;
  p.text(words.plain("tokens"), 0, STRIP - 12, { colour: p.theme.mut });
  p.text(words.plain("positions"), 0, STRIP + 12, { colour: p.theme.mut, size: 10.5 });
  p.faded(emphasis(state.substep, "tokens"), () => {
    for (const [start, end] of store.groups) {
      const from = Math.max(start, columns.first);
      if (from < Math.min(end, T))
        p.line(columns.x(from) + 2, STRIP + 2, columns.x(Math.min(end, T)) - 4, STRIP + 2, p.theme.fg, 1.4);
    }
    const every = columns.width >= 20 ? 1 : 5;
    for (let t = columns.first; t < T; t++) {
      const last = t === T - 1;
      if (t % every && !last) continue;
      if (!last && every > 1 && T - 1 - t < 2) continue;
      p.text(String(t), columns.x(t) + columns.width / 2 - 0.5, STRIP + 12, {
        size: 10,
        align: "center",
        colour: last ? p.theme.fg : p.theme.mut,
        weight: last ? 700 : 400,
      });
    }
    if (columns.fold) {
      const folded = words.plain("folded_n", { positions: integer(columns.first) });
      p.text(folded, LABELS + (columns.fold - 4) / 2, STRIP + 12, {
        size: 10,
        align: "center",
        colour: p.theme.mut,
        most: columns.fold - 2,
      });
    }
    if (columns.width < 40) return;
    drawSpan(p, columns, 0, Math.min(store.P, T), words.plain("prompt_n", { tokens: integer(store.P) }));
    if (T > store.P) drawSpan(p, columns, store.P, T, words.plain("generated_n", { tokens: integer(T - store.P) }));
  });
}

function drawSpan(p, columns, from, to, text) {
  const x1 = columns.x(from) + 1;
  const x2 = columns.x(to) - 3;
  p.line(x1, 11, x2, 11, p.theme.line);
  p.line(x1, 11, x1, 14, p.theme.line);
  p.line(x2, 11, x2, 14, p.theme.line);
  if (x2 - x1 > 56) p.text(text, x1, 8, { size: 10, colour: p.theme.mut, most: x2 - x1 });
}
