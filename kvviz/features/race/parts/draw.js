// One lane's picture. Columns are passes, depth is position: a pass without the cache computes its whole
// prefix (hatched) and the newest row (solid); with the cache only the newest row. Prefill is the same in both.

const KVR_NS = "http://www.w3.org/2000/svg";
const KVR_BARS = 116; // px, height of the picture
const KVR_CHIP = 30; // px, narrowest column that still shows a token of its own

function kvrNode(tag, className, parent) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (parent) parent.append(node);
  return node;
}

function kvrSvg(tag, className, parent, attributes = {}) {
  const node = document.createElementNS(KVR_NS, tag);
  if (className) node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (parent) parent.append(node);
  return node;
}

function kvrHatch(parent) {
  const svg = kvrSvg("svg", "kvr-defs", parent, { "aria-hidden": "true" });
  const pattern = kvrSvg("pattern", "", kvrSvg("defs", "", svg), {
    id: "kvr-hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
  });
  kvrSvg("rect", "kvr-hatch-ground", pattern, { width: 5, height: 5 });
  kvrSvg("line", "kvr-hatch-stroke", pattern, { x1: 0, y1: 0, x2: 0, y2: 5 });
}

// K over V, muted, as the cache is drawn everywhere. Where positions are thin a stripe stands for several.
class KvrKept {
  constructor(svg, id) {
    this.pattern = kvrSvg("pattern", "", svg, { id, width: 8, patternUnits: "userSpaceOnUse" });
    this.k = kvrSvg("rect", "kvr-k", this.pattern, { width: 8 });
    this.v = kvrSvg("rect", "kvr-v", this.pattern, { width: 8 });
  }

  resize(h) {
    this.pattern.setAttribute("height", h);
    for (const rect of [this.k, this.v]) rect.setAttribute("height", h / 2);
    this.v.setAttribute("y", h / 2);
  }
}

// "**bold** plain" as nodes; the text itself is always literal.
function kvrSay(node, text) {
  if (node.kvrText === text) return;
  node.kvrText = text;
  node.replaceChildren(...text.split("**").map((part, i) => {
    if (i % 2 === 0) return document.createTextNode(part);
    const bold = document.createElement("b");
    bold.textContent = part;
    return bold;
  }));
}

// Columns for P prompt tokens and N new ones in `width` px: w px a column, h px a row.
function kvrGeometry(P, N, width) {
  return { w: Math.min(width / N, 64), h: KVR_BARS / (P + N - 1), gap: width / N > 12 ? 2 : 0 };
}

function kvrRect(x, y, w, h) {
  return `M${x.toFixed(2)} ${y.toFixed(2)}h${w.toFixed(2)}v${h.toFixed(2)}h${(-w).toFixed(2)}z`;
}

// Outline of all the passes to come, so that an empty lane shows how far it will go.
function kvrComing(P, N, w, h, gap) {
  let steps = `M0 0V${(P * h).toFixed(2)}`;
  for (let i = 0; i < N; i++) steps += `V${((P + i) * h).toFixed(2)}H${((i + 1) * w - gap).toFixed(2)}`;
  return `${steps}V0z`;
}

// The whole picture of a lane at once; a clip shows the passes that are through.
function kvrPaths(P, N, width) {
  const { w, h, gap } = kvrGeometry(P, N, width);
  const thick = Math.max(h, 1.6);
  let above = "";
  let fresh = kvrRect(0, 0, w - gap, P * h);
  for (let i = 1; i < N; i++) {
    const top = (P + i - 1) * h;
    above += kvrRect(i * w, 0, w - gap, top);
    fresh += kvrRect(i * w, Math.min(top, KVR_BARS - thick), w - gap, thick);
  }
  let rules = "";
  // Cells where they are tall enough to be seen; else only prefill's.
  if (h >= 3) for (let t = 1; t < P + N - 1; t++) if (h >= 6 || t < P) rules += `M0 ${(t * h).toFixed(2)}h${(h >= 6 ? N * w : w).toFixed(2)}`;
  return { above, fresh, rules, coming: kvrComing(P, N, w, h, gap), w, h, gap };
}

class KvrLane {
  constructor(parent, cached) {
    this.cached = cached;
    const root = kvrNode("section", `kvr-lane ${cached ? "kvr-cached" : "kvr-uncached"}`, parent);
    const name = kvrNode("div", "kvr-name", root);
    this.name = kvrNode("b", "", name);
    this.note = kvrNode("span", "", name);
    const gutter = kvrNode("div", "kvr-gutter", root);
    this.countLabel = kvrNode("span", "", gutter);
    this.count = kvrNode("span", "kvr-count", gutter);
    this.middle = kvrNode("div", "", root);
    this.chips = kvrNode("div", "kvr-chips", this.middle);
    this.svg = kvrSvg("svg", "kvr-rows", this.middle, { height: KVR_BARS + 1, role: "img" });
    this.clipId = `kvr-clip-${Math.random().toString(36).slice(2)}`;
    this.clip = kvrSvg("rect", "", kvrSvg("clipPath", "", this.svg, { id: this.clipId }), { x: -1, y: -1, height: KVR_BARS + 2 });
    kvrSvg("line", "kvr-base", this.svg, { x1: 0, y1: 0, x2: "100%", y2: 0 });
    this.coming = kvrSvg("path", "kvr-coming", this.svg);
    const shown = kvrSvg("g", "", this.svg, { "clip-path": `url(#${this.clipId})` });
    this.above = kvrSvg("path", "", shown);
    if (cached) {
      this.kept = new KvrKept(this.svg, `${this.clipId}-kept`);
      this.above.setAttribute("fill", `url(#${this.clipId}-kept)`);
    }
    this.fresh = kvrSvg("path", "kvr-new", shown);
    this.rules = kvrSvg("path", "kvr-rule", shown);
    this.card = kvrNode("div", "kvr-card", root);
    this.shape = "";
    this.tokens = null;
    this.passes = -1; // painted
    this.wanted = 0; // asked for; differs while the lane has no width yet
  }

  // New numbers and words; draws again only what differs.
  update(data, lane) {
    this.name.textContent = lane.name;
    this.note.textContent = lane.note;
    this.countLabel.textContent = data.words.count;
    this.svg.setAttribute("aria-label", lane.alt);
    const facts = lane.facts.flatMap(([label, value, range]) => {
      const fact = kvrNode("div", "kvr-fact");
      kvrNode("span", "", fact).textContent = label;
      kvrNode("b", "", fact).textContent = value;
      if (range === undefined) return [fact];
      const spread = kvrNode("div", "kvr-range");
      spread.textContent = range;
      return [fact, spread];
    });
    this.card.replaceChildren(...facts);
    this.data = data;
    this.layout();
  }

  layout() {
    const { P, N, tokens } = this.data;
    const width = Math.floor(this.middle.clientWidth);
    if (!width) return;
    const shape = `${P} ${N} ${width}`;
    if (shape !== this.shape) {
      this.shape = shape;
      const paths = kvrPaths(P, N, width);
      this.above.setAttribute("class", this.cached ? "" : paths.gap ? "kvr-wasted" : "kvr-wasted kvr-fine");
      this.kept?.resize(paths.h * Math.ceil(7 / paths.h));
      this.above.setAttribute("d", paths.above);
      this.fresh.setAttribute("d", paths.fresh);
      this.coming.setAttribute("d", paths.coming);
      this.rules.setAttribute("d", paths.rules);
      this.column = paths.w;
      this.gap = paths.gap;
      this.tokens = null;
    }
    const key = tokens.join("\u0000");
    if (key !== this.tokens) {
      this.tokens = key;
      this.buildChips();
      this.passes = -1;
    }
  }

  buildChips() {
    const flow = this.column < KVR_CHIP;
    this.chips.classList.toggle("kvr-flow", flow);
    this.chips.replaceChildren();
    this.chipNodes = [];
    if (flow) {
      this.flow = kvrNode("span", "", this.chips);
      return;
    }
    this.flow = null;
    this.chipNodes = this.data.tokens.map((token, i) => {
      const chip = kvrNode("span", "kvr-chip", this.chips);
      chip.textContent = token;
      chip.title = token;
      chip.style.left = `${(i * this.column).toFixed(2)}px`;
      chip.style.width = `${(this.column - this.gap).toFixed(2)}px`;
      return chip;
    });
  }

  // The first `passes` passes are through: k tokens on screen.
  show(passes) {
    this.wanted = passes;
    if (passes === this.passes || this.column === undefined) return;
    this.passes = passes;
    const { P, tokens } = this.data;
    this.clip.setAttribute("width", Math.max(0, passes * this.column + 0.4).toFixed(2));
    const rows = passes === 1 ? P : this.cached ? 1 : P + passes - 1;
    this.count.textContent = passes ? rows.toLocaleString("en-US") : "–";
    if (this.flow) {
      this.flow.textContent = tokens.slice(Math.max(0, passes - 60), passes).join("");
      return;
    }
    this.chipNodes.forEach((chip, i) => {
      chip.hidden = i >= passes;
      chip.classList.toggle("kvr-last", i === passes - 1);
    });
  }
}
