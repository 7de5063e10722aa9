// All heads at a glance on one canvas: a tile a head, drawn from bytes. A click or a key moves the outline at once;
// Python hears of it after a moment's rest and draws what depends on it.

const TALL = 430; // pixels of all rows of tiles
const LEFT = 34, TOP = 20, GAP = 4;
const REST = 60; // milliseconds between the last of several keys and the word to Python
const USED = "input, textarea, select, [contenteditable='true'], [role='textbox'], [role='combobox'], [role='listbox'], "
  + "[role='option'], [role='menu'], [role='grid'], [role='dialog'], [role='slider'], [role='tab'], [role='radio'], "
  + "[role='radiogroup'], canvas[data-testid='data-grid-canvas']";
const mounts = new WeakMap();

export default function (component) {
  const { parentElement } = component;
  let heads = mounts.get(parentElement);
  if (!heads) mounts.set(parentElement, (heads = new Heads(parentElement)));
  heads.receive(component);
  return () => setTimeout(() => {
    if (parentElement.isConnected) return;
    heads.destroy();
    mounts.delete(parentElement);
  }, 100);
}

function read(bytes) {
  const own = new Uint8Array(bytes.buffer ? bytes : Uint8Array.from(bytes));
  const length = new DataView(own.buffer, own.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(own.subarray(4, 4 + length)));
  return { ...header, tiles: own.subarray(4 + length) };
}

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// Byte -> colour: the weights' scale, then hidden, then nothing.
function lookUp(data, theme) {
  const table = new Uint8ClampedArray(256 * 4);
  const scale = theme.scale.map(rgb);
  for (let v = 0; v <= data.one; v++) {
    const w = v / data.one;
    let i = 1;
    while (i < data.stops.length - 1 && data.stops[i] < w) i++;
    const part = (w - data.stops[i - 1]) / (data.stops[i] - data.stops[i - 1]);
    for (let c = 0; c < 3; c++) table[4 * v + c] = scale[i - 1][c] + part * (scale[i][c] - scale[i - 1][c]);
    table[4 * v + 3] = 255;
  }
  table.set([...rgb(theme.masked), 255], 4 * data.masked);
  table.set([...rgb(theme.background), 0], 4 * data.nothing);
  return table;
}

class Heads {
  constructor(parent) {
    this.parent = parent;
    this.root = document.createElement("div");
    this.root.className = "kvh";
    this.root.dataset.testid = "kv-heads";
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.tip = document.createElement("div");
    this.tip.className = "kvh-tip";
    this.tip.hidden = true;
    this.foot = document.createElement("div");
    this.foot.className = "kvh-foot";
    this.root.append(this.canvas, this.tip, this.foot);
    parent.append(this.root);
    this.canvas.addEventListener("click", (e) => this.at(e) && this.go(this.at(e), 0));
    this.canvas.addEventListener("mousemove", (e) => this.point(e));
    this.canvas.addEventListener("mouseleave", () => (this.tip.hidden = true));
    this.key = (e) => this.pressed(e);
    document.addEventListener("keydown", this.key);
    this.watcher = new ResizeObserver(() => this.data && this.paint());
    this.watcher.observe(this.root);
  }

  destroy() {
    document.removeEventListener("keydown", this.key);
    this.watcher.disconnect();
    clearTimeout(this.timer);
  }

  receive(component) {
    this.send = component;
    const data = read(component.data);
    if (data.tiles.length) this.kept = { picture: data.picture, tiles: data.tiles };
    if (this.kept?.picture !== data.picture) return component.setStateValue("lack", (this.lacks = (this.lacks ?? 0) + 1));
    data.tiles = this.kept.tiles;
    const asked = !this.data || data.key !== this.data.key || data.run !== this.data.run;
    this.data = data;
    this.times ??= data.heard;
    const late = this.timer || this.times > data.heard; // the learner has gone on since
    if (asked && !late) this.place = { step: data.step, layer: data.layer, head: data.head };
    else if (asked) this.place = this.within(this.place);
    else if (!this.timer) this.place.step = data.step;
    const ground = getComputedStyle(this.parent).getPropertyValue("--st-background-color").trim();
    this.dark = isDark(ground);
    this.theme = data.themes[this.dark ? "dark" : "light"];
    for (const name of ["background", "text", "muted", "line", "q"]) this.root.style.setProperty(`--kvh-${name}`, this.theme[name]);
    const look = `${data.picture}|${this.dark}`; // what the tiles' pictures depend on
    if (look !== this.look) [this.look, this.pictures] = [look, null];
    this.foot.replaceChildren(...keyed(data.words.keys));
    this.canvas.setAttribute("aria-label", data.words.alt);
    this.paint();
  }

  // Which head stands where: by layer (down) and head (across), or by rank in rows as long.
  layout() {
    const { L, H, order } = this.data;
    const wide = this.root.clientWidth - LEFT;
    const mark = this.data.marks ? 13 : 0;
    const size = Math.max(6, Math.floor(Math.min(wide / H - GAP, TALL / L - GAP - mark)));
    const cells = [];
    for (let i = 0; i < L * H; i++) {
      const [layer, head] = order ? order[i] : [Math.floor(i / H), i % H];
      cells.push({ layer, head, x: LEFT + (i % H) * (size + GAP), y: TOP + Math.floor(i / H) * (size + GAP + mark) });
    }
    return { size, cells, mark, height: TOP + L * (size + GAP + mark) };
  }

  tile(layer, head) {
    const { n, H } = this.data;
    if (!this.pictures) {
      this.pictures = new Map();
      this.colours = new Uint32Array(lookUp(this.data, this.theme).buffer);
    }
    const at = layer * H + head;
    if (!this.pictures.has(at)) {
      const picture = new OffscreenCanvas(n, n);
      const image = new ImageData(n, n);
      const cells = new Uint32Array(image.data.buffer);
      const bytes = this.data.tiles.subarray(at * n * n, (at + 1) * n * n);
      for (let i = 0; i < bytes.length; i++) cells[i] = this.colours[bytes[i]];
      picture.getContext("2d").putImageData(image, 0, 0);
      this.pictures.set(at, picture);
    }
    return this.pictures.get(at);
  }

  paint() {
    const { canvas, data, theme } = this;
    const { size, cells, mark, height } = (this.laid = this.layout());
    const wide = this.root.clientWidth;
    const sharp = window.devicePixelRatio || 1;
    canvas.width = Math.round(wide * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.height = `${height}px`;
    const g = canvas.getContext("2d");
    g.scale(sharp, sharp);
    g.imageSmoothingEnabled = size * sharp < data.n;
    g.font = "11px 'Source Code Pro', monospace";
    g.fillStyle = theme.muted;
    g.textBaseline = "middle";
    if (!data.order) {
      g.textAlign = "center";
      const every = Math.ceil(20 / (size + GAP));
      for (let h = 0; h < data.H; h += every) g.fillText(`H${h}`, LEFT + h * (size + GAP) + size / 2, TOP / 2);
      g.textAlign = "right";
      const each = Math.ceil(12 / (size + GAP + mark));
      for (let l = 0; l < data.L; l += each) g.fillText(`L${l}`, LEFT - 6, TOP + l * (size + GAP + mark) + size / 2);
    } else {
      g.textAlign = "left";
      g.fillText(data.words.ranked, LEFT, TOP / 2);
    }
    for (const { layer, head, x, y } of cells) {
      g.drawImage(this.tile(layer, head), x, y, size, size);
      g.lineWidth = 1;
      g.strokeStyle = theme.line;
      g.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
      if (mark && size > 26) {
        g.textAlign = "center";
        g.fillStyle = theme.muted;
        g.fillText(data.marks[layer][head], x + size / 2, y + size + 7, size + 2);
      }
    }
    const here = cells.find((c) => c.layer === this.place.layer && c.head === this.place.head);
    g.lineWidth = 3;
    g.strokeStyle = theme.text;
    if (here) g.strokeRect(here.x - 1.5, here.y - 1.5, size + 3, size + 3);
    Object.assign(this.root.dataset, { ...this.place, drawn: Number(this.root.dataset.drawn ?? 0) + 1, theme: this.dark ? "dark" : "light", side: size });
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const { size, cells } = this.laid;
    return cells.find((c) => x >= c.x && x < c.x + size + GAP && y >= c.y && y < c.y + size + GAP);
  }

  point(event) {
    const cell = this.at(event);
    this.tip.hidden = !cell;
    if (!cell) return;
    this.tip.textContent = this.data.notes[cell.layer][cell.head];
    const { size } = this.laid;
    const right = cell.x + size + 300 > this.root.clientWidth;
    this.tip.style.left = right ? `${Math.max(0, cell.x - this.tip.offsetWidth - 6)}px` : `${cell.x + size + 6}px`;
    this.tip.style.top = `${Math.max(0, cell.y)}px`;
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    const target = event.target instanceof Element ? event.target : document.body;
    if (!this.root.isConnected || target.closest(USED)) return;
    const { step, layer, head } = this.place;
    const moves = {
      ArrowRight: { step: step + 1 }, PageDown: { step: step + 1 }, ArrowLeft: { step: step - 1 }, PageUp: { step: step - 1 },
      ArrowUp: { layer: layer - 1 }, ArrowDown: { layer: layer + 1 },
      "[": { head: head - 1 }, ",": { head: head - 1 }, "]": { head: head + 1 }, ".": { head: head + 1 },
      Home: { step: 0 }, End: { step: this.data.last },
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.go(moves[event.key]);
  }

  // Python hears of a click before the outline is painted.
  go({ step = this.place.step, layer = this.place.layer, head = this.place.head }, rest = REST) {
    this.place = this.within({ step, layer, head });
    clearTimeout(this.timer);
    const tell = () => {
      this.timer = null;
      this.send.setStateValue("at", { ...this.place, times: ++this.times });
    };
    if (rest) this.timer = setTimeout(tell, rest);
    else tell();
    this.paint();
  }

  within({ step, layer, head }) {
    const { L, H, last } = this.data;
    const held = (value, most) => Math.min(Math.max(0, value), most);
    return { step: held(step, last), layer: held(layer, L - 1), head: held(head, H - 1) };
  }
}

// "… [[→]] …": what stands in double brackets is a key.
function keyed(text) {
  return text.split(/(\[\[.+?\]\](?!\]))/).map((part) => {
    if (!part.startsWith("[[")) return document.createTextNode(part);
    const key = document.createElement("kbd");
    key.textContent = part.slice(2, -2);
    return key;
  });
}

function isDark(colour) {
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})/i.exec(colour);
  const parts = hex ? hex.slice(1, 4).map((c) => parseInt(c, 16)) : (colour.match(/\d+/g) ?? []).slice(0, 3).map(Number);
  return parts.length === 3 && 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128;
}
