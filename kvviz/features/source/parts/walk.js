// The source listing with its lit line, and what its variables hold. All text is set as textContent.

const walks = new WeakMap(); // parent element -> Walk
const REPORT_AFTER = 250; // milliseconds of rest at a station
const GONE_AFTER = 100; // milliseconds until an element that goes has left the page
const MOST_KNOWN = 300; // places kept, of about 12 kB each
const LAST = 1e6; // as a station: the last one of its pass
const PLAY_EVERY = 1600; // milliseconds a station is shown while it plays
const BUSY =
  "input, textarea, select, [contenteditable='true'], [role='textbox'], [role='combobox'], [role='listbox'], " +
  "[role='option'], [role='menu'], [role='grid'], [role='dialog'], [role='slider'], [role='radio'], [role='tab']";

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

class Walk {
  constructor(parent) {
    this.root = make("section", "kvw");
    this.path = make("nav", "kvw-path");
    this.where = make("div", "kvw-where");
    this.code = make("div", "kvw-code");
    this.code.tabIndex = 0;
    this.side = make("div", "kvw-side");
    this.side.setAttribute("aria-live", "polite");
    this.foot = make("div", "kvw-foot");
    this.back = make("button", "kvw-button");
    this.on = make("button", "kvw-button");
    this.counted = make("span", "kvw-count");
    this.keys = make("span", "kvw-keys");
    this.back.onclick = () => this.walk(-1);
    this.on.onclick = () => this.walk(1);
    this.foot.append(this.back, this.on, this.counted, this.keys);
    const left = make("div", "kvw-left");
    left.append(this.where, this.code);
    const body = make("div", "kvw-body");
    body.append(left, this.side);
    this.root.append(this.path, body, this.foot);
    parent.append(this.root);
    this.listener = (event) => this.pressed(event);
    document.addEventListener("keydown", this.listener);
  }

  destroy() {
    document.removeEventListener("keydown", this.listener);
    clearTimeout(this.reporting);
    clearInterval(this.playing);
    this.root.remove();
  }

  receive({ data, setStateValue, setTriggerValue }) {
    this.send = setStateValue;
    this.trigger = setTriggerValue;
    if (!this.data || this.data.run !== data.run || Object.keys(this.known).length > MOST_KNOWN) this.known = {};
    Object.assign(this.known, data.places);
    this.data = data;
    if (this.move !== data.move || !this.place) {
      this.move = data.move;
      this.place = { ...data.place };
    }
    this.draw();
  }

  // What is known of the pass, layer and head in view, or undefined until Python has said it.
  here() {
    const { step, layer, head } = this.place;
    return this.known[[step, layer, head].join()];
  }

  // One station on or back; beyond the last one, into the next pass.
  walk(by) {
    const to = this.place.station + by;
    if (to >= 0 && to < this.count()) return this.go({ station: to });
    const step = this.place.step + by;
    if (step < 0 || step > this.data.last) return this.halt();
    this.go({ step, station: by > 0 ? 0 : LAST });
  }

  count() {
    return this.data.walks[this.place.step ? "decode" : "prefill"].stations.length;
  }

  go(change) {
    this.place = { ...this.place, ...change };
    this.draw();
    clearTimeout(this.reporting);
    this.reporting = setTimeout(() => this.report(), this.here() ? REPORT_AFTER : 0);
  }

  report() {
    const { step, layer, head, station } = this.place;
    if (this.send) this.send("place", { step, layer, head, station, move: this.move });
  }

  within(name, by) {
    const to = this.place[name] + by;
    if (to >= 0 && to < this.data[`${name}s`]) this.go({ [name]: to });
  }

  toggle() {
    if (this.playing) return this.halt();
    this.playing = setInterval(() => this.walk(1), PLAY_EVERY);
    this.walk(1);
  }

  halt() {
    clearInterval(this.playing);
    this.playing = null;
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    const target = event.target instanceof Element ? event.target : document.body;
    if (!this.root.isConnected || target.closest(BUSY)) return;
    const presses = target.closest("button, a[href], summary, [role='button']");
    if (presses && (event.key === " " || event.key === "Enter")) return;
    const pass = (by) => {
      const step = this.place.step + by;
      if (step >= 0 && step <= this.data.last) this.go({ step });
    };
    const actions = {
      ArrowRight: () => (event.shiftKey ? pass(1) : this.walk(1)),
      ArrowLeft: () => (event.shiftKey ? pass(-1) : this.walk(-1)),
      PageDown: () => this.walk(1),
      PageUp: () => this.walk(-1),
      ArrowDown: () => this.within("layer", 1),
      ArrowUp: () => this.within("layer", -1),
      "]": () => this.within("head", 1),
      ".": () => this.within("head", 1),
      "[": () => this.within("head", -1),
      ",": () => this.within("head", -1),
      Home: () => this.go({ station: 0 }),
      End: () => this.go({ station: LAST }),
      n: () => this.data.canExtend && this.trigger("extend", { passes: this.data.last + 2 }),
      " ": () => this.toggle(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    if (event.key !== " ") this.halt();
    action();
  }

  draw() {
    const { data, place } = this;
    const { stations, listings } = data.walks[place.step ? "decode" : "prefill"];
    place.station = Math.min(place.station, stations.length - 1);
    const station = stations[place.station];
    const said = this.here();
    this.root.setAttribute("aria-label", data.words.label);
    this.root.toggleAttribute("data-waits", !said);
    this.drawPath(stations, listings, station);
    this.drawCode(listings[station.listing], station.lit);
    if (said) this.drawSide(station.title, said[place.station]);
    this.back.textContent = data.words.back;
    this.on.textContent = data.words.on;
    this.back.disabled = place.station === 0 && place.step === 0;
    this.on.disabled = place.station === stations.length - 1 && place.step === data.last;
    const pass = data.words.pass.replace(/\{(\w+)\}/g, (_, name) => place[name]);
    this.counted.textContent = `${data.words.line} ${place.station + 1} / ${stations.length} · ${pass}`;
    this.keys.textContent = data.words.keys;
  }

  // The calls that the lit line stands in, and every station as a dot on its level.
  drawPath(stations, listings, station) {
    this.path.replaceChildren();
    stations.forEach((each, i) => {
      const dot = make("button", "kvw-dot", String(i + 1));
      dot.title = `${listings[each.listing].name}: ${each.title}`;
      dot.setAttribute("aria-label", `${i + 1} ${each.title}`);
      dot.style.setProperty("--depth", each.depth);
      if (each === station) dot.setAttribute("aria-current", "step");
      if (i < this.place.station) dot.dataset.passed = "";
      dot.onclick = () => this.go({ station: i });
      this.path.append(dot);
    });
  }

  drawCode(listing, [from, to]) {
    const { words } = this.data;
    this.where.replaceChildren(make("b", "", listing.name), make("span", "", ` ${listing.file}, ${words.version}`));
    const rows = [];
    let lit = null;
    listing.lines.forEach((text, i) => {
      const number = listing.first + i;
      if (listing.prose && number >= listing.prose[0] && number <= listing.prose[1]) {
        if (number > listing.prose[0]) return;
        const fold = make("div", "kvw-line kvw-fold");
        fold.append(make("i", "", ""), make("span", "", words.folded.replace("#", listing.prose[1] - number + 1)));
        rows.push(fold);
        return;
      }
      const row = make("div", "kvw-line");
      const code = make("span", "", text.trimStart());
      code.style.setProperty("--indent", text.length - text.trimStart().length);
      row.append(make("i", "", String(number)), code);
      if (number >= from && number <= to) {
        row.dataset.lit = "";
        lit ||= row;
      }
      rows.push(row);
    });
    this.code.replaceChildren(...rows);
    if (!lit) return;
    lit.setAttribute("aria-current", "true");
    this.code.scrollTop = lit.offsetTop - this.code.clientHeight * 0.35;
  }

  drawSide(named, { says: told, rows }) {
    const title = make("h4", "", named);
    const says = make("p", "");
    for (const [text, kind] of told) says.append(kind ? make("code", kind, text) : text);
    const table = make("dl", "");
    for (const [name, text, kind] of rows) {
      const row = make("div", "");
      row.append(make("dt", kind, name), make("dd", kind, text));
      table.append(row);
    }
    this.side.replaceChildren(title, says, table);
  }
}

export default function (component) {
  const parent = component.parentElement;
  let walk = walks.get(parent);
  if (!walk) walks.set(parent, (walk = new Walk(parent)));
  walk.receive(component);
  return () => {
    setTimeout(() => {
      if (parent.isConnected || walks.get(parent) !== walk) return;
      walk.destroy();
      walks.delete(parent);
    }, GONE_AFTER);
  };
}
