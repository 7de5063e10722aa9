// What this tab knows of each run. It outlives a mount, so a page change asks Python for nothing again.

const RUNS_KEPT = 4;
const runs = new Map(); // run key -> RunStore
const places = new Map(); // mount key -> {move, run, state}: where a mount stood when it went
// run key -> where the learner stands in it. To tell Python at the click that leaves a page would start a run of that
// page, in the way of the next one's; so the next page's player begins here, and tells.
const stood = new Map();

function storeOf(header) {
  let store = runs.get(header.run);
  if (!store) {
    store = new RunStore(header);
    if (runs.size >= RUNS_KEPT) runs.delete(runs.keys().next().value);
  }
  runs.delete(header.run);
  runs.set(header.run, store);
  return store;
}

// A message: blobs, the length of each, how many. The first is the run as it is, the others one pass more each.
function unpack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const count = view.getUint32(bytes.length - 4, true);
  let start = 0;
  return Array.from({ length: count }, (_, i) => {
    const end = start + view.getUint32(bytes.length - 4 * (count + 1 - i), true);
    const blob = decode(bytes.subarray(start, end));
    start = end;
    return blob;
  });
}

// Bytes of a blob: header length, header, padding, arrays.
function decode(bytes) {
  const own = bytes.slice(); // aligned, and independent of Streamlit's buffer
  const length = new DataView(own.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(own.subarray(4, 4 + length)));
  return { header, buffer: own.buffer, base: 4 + length };
}

// Halves in one growing array of rows of the same width.
class Rows {
  constructor(width) {
    this.width = width;
    this.count = 0;
    this.data = new Uint16Array(width * 64);
  }

  // Put rows at `start`; false if that would leave a hole.
  put(start, halves) {
    if (start > this.count) return false;
    const end = start * this.width + halves.length;
    if (end > this.data.length) {
      const larger = new Uint16Array(Math.max(end, this.data.length * 2));
      larger.set(this.data);
      this.data = larger;
    }
    this.data.set(halves, start * this.width);
    this.count = Math.max(this.count, end / this.width);
    return true;
  }

  at(row, column) {
    return HALF[this.data[row * this.width + column]];
  }
}

class RunStore {
  constructor(header) {
    this.key = header.run;
    this.P = header.P;
    this.window = header.window;
    this.model = header.model;
    this.passes = [];
    this.labels = []; // of every position fed or about to be
    this.ids = [];
    this.norms = new Rows(2 * header.model.L);
    this.largest = [[], []]; // running maxima of K and V norms by position
    this.headnorms = new Map(); // layer -> Rows
    this.attention = new Map(); // layer * H + head -> {first, rows: [halves of pass 1, 2, ...]}
    this.slabs = new Map(); // layer * H + head -> {q, k, v: Rows}
  }

  // Add what a message brings. False when it starts after what is known: something was lost.
  merge({ header, buffer, base }) {
    for (const name of ["repeats", "recorded", "sampling", "device", "groups"]) this[name] = header[name];
    if (header.prompt.length && !this.labels.length) {
      this.labels = header.prompt[0].slice();
      this.ids = header.prompt[1].slice();
    }
    if (header.from > this.passes.length || (header.from > 0 && !this.labels.length)) return false;
    header.passes.slice(this.passes.length - header.from).forEach((pass) => {
      this.passes.push(pass);
      this.labels.push(pass.token);
      this.ids.push(pass.id);
    });
    let whole = true;
    for (const a of header.arrays) {
      const halves = new Uint16Array(buffer, base + a.offset, a.bytes / 2);
      whole = this.take(a, halves) && whole;
    }
    return whole;
  }

  // The first row that pass s brought.
  firstRow(s) {
    return s === 0 ? 0 : this.P + s - 1;
  }

  take(a, halves) {
    const { L, H, Hkv, D } = this.model;
    if (a.kind === "norms") {
      const fits = this.norms.put(this.firstRow(a.from), halves);
      this.extendMaxima();
      return fits;
    }
    if (a.kind === "headnorms") {
      if (!this.headnorms.has(a.layer)) this.headnorms.set(a.layer, new Rows(2 * Hkv));
      return this.headnorms.get(a.layer).put(this.firstRow(a.from), halves);
    }
    const unit = a.layer * H + Math.max(0, a.head);
    if (a.kind === "attention") return this.takeAttention(a, halves);
    if (!this.slabs.has(unit)) this.slabs.set(unit, { q: new Rows(D), k: new Rows(D), v: new Rows(D) });
    return this.slabs.get(unit)[a.kind].put(a.from, halves);
  }

  takeAttention(a, halves) {
    const { H } = this.model;
    const heads = a.head < 0 ? [...Array(H).keys()] : [a.head];
    const W = Math.min(this.P, this.window);
    const first = (W * (W + 1)) / 2 + (this.P > W ? W + this.P : 0);
    let offset = 0;
    let fits = true;
    for (let s = a.from; s < a.to; s++) {
      const size = s === 0 ? first : this.P + s;
      for (const h of heads) {
        const unit = a.layer * H + h;
        if (!this.attention.has(unit)) this.attention.set(unit, []);
        const held = this.attention.get(unit);
        if (s > held.length) fits = false;
        else held[s] = halves.subarray(offset, offset + size);
        offset += size;
      }
    }
    return fits;
  }

  extendMaxima() {
    const [k, v] = this.largest;
    for (let t = k.length; t < this.norms.count; t++) {
      let mk = t ? k[t - 1] : 0;
      let mv = t ? v[t - 1] : 0;
      for (let l = 0; l < this.model.L; l++) {
        mk = Math.max(mk, this.norms.at(t, 2 * l));
        mv = Math.max(mv, this.norms.at(t, 2 * l + 1));
      }
      k.push(mk);
      v.push(mv);
    }
  }

  hasAttention(layer, head, pass) {
    return (this.attention.get(layer * this.model.H + head) || []).length > pass;
  }

  slab(layer, head, rows) {
    const slab = this.slabs.get(layer * this.model.H + head);
    return slab && slab.v.count >= rows && slab.q.count >= rows ? slab : null;
  }

  // Weights of the last query of a pass, as a function of the key's position; null if not here yet.
  weights(layer, head, pass) {
    if (!this.hasAttention(layer, head, pass)) return null;
    const halves = this.attention.get(layer * this.model.H + head)[pass];
    const skip = pass === 0 ? halves.length - this.P : 0;
    return (t) => HALF[halves[skip + t]];
  }

  // Prefill's square: weight of key j for query i, and the sum over the keys before `from`.
  square(layer, head) {
    if (!this.hasAttention(layer, head, 0)) return null;
    const halves = this.attention.get(layer * this.model.H + head)[0];
    const W = Math.min(this.P, this.window);
    const a = this.P - W;
    const at = (i, j) => HALF[halves[((i - a) * (i - a + 1)) / 2 + (j - a)]];
    const folded = (i, from) => {
      let sum = a ? HALF[halves[(W * (W + 1)) / 2 + (i - a)]] : 0;
      for (let j = a; j < Math.min(from, i + 1); j++) sum += at(i, j);
      return sum;
    };
    return { at, folded, first: a };
  }

  // How many of the newest positions a query sees in a layer; 0: all.
  windowOf(layer) {
    return this.model.windows ? this.model.windows[layer] : 0;
  }

  // The first key that the query at a position sees in a layer. Those before it are stored and not looked at.
  firstSeen(layer, position) {
    const window = this.windowOf(layer);
    return window ? Math.max(0, position + 1 - window) : 0;
  }

  // What Python is told is held here: flat lists of unit, count.
  have(language) {
    const flat = (map, count) => [...map].flatMap(([unit, held]) => [unit, count(held)]);
    const passesOf = (rows) => Math.max(0, rows.count - this.P + 1);
    return {
      passes: this.passes.length,
      language,
      headnorms: flat(this.headnorms, passesOf),
      attention: flat(this.attention, (held) => held.length),
      slabs: flat(this.slabs, (slab) => slab.v.count),
    };
  }
}
