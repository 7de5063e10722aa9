// The player: where it stands, what Python says to it, what keys and buttons do to it.

const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const OPENING = 160; // milliseconds

class Player extends Screen {
  constructor(parent) {
    super();
    this.root = make("div", "kvp", parent);
    this.root.dataset.testid = "kv-player";
    this.state = { step: 0, layer: 0, head: 0, opened: "all", substep: null, grown: null };
    this.store = null;
    this.ready = new Ready(this);
    this.playing = false;
    this.follow = false;
    this.timer = null;
    this.speed = 1;
    this.build();
    this.talk = new Talk(this);
    this.keys = new Keys(this);
    this.sizes = new ResizeObserver(() => this.render());
    this.sizes.observe(this.root);
    this.repaint = () => this.render();
    document.fonts.addEventListener("loadingdone", this.repaint);
  }

  // ---- what Python says -------------------------------------------------------------------------

  receive(component) {
    this.talk.send = component;
    if (!(component.data instanceof Uint8Array)) return;
    const [message, ...ready] = unpack(component.data);
    const { header } = message;
    const { caller } = header;
    if (caller.words) words.take(caller.language, caller.words);
    const before = this.store;
    this.store = storeOf(header);
    const known = this.store.passes.length;
    const whole = this.store.merge(message);
    this.mode = caller.mode;
    this.presenter = caller.presenter;
    this.canExtend = caller.canExtend;
    this.busy = caller.busy;
    this.limit = header.total + caller.room;
    this.key = caller.key;
    if (before !== this.store) this.talk.forget();
    this.settle(before, header, caller, known);
    this.painter.theme = applyTheme(this.root);
    this.buildPipe();
    this.ready.take(ready);
    const grew = this.store.passes.length > known;
    this.talk.heard(caller.answered, grew || header.arrays.length > 0, Boolean(caller.busy));
    this.render();
    this.talk.lookOut(caller.coming);
    this.talk.prepare(caller.preparing);
    const worded = words.language === caller.language;
    if (!whole || !worded || header.more || header.from > this.store.passes.length) this.talk.want();
    else this.askIfLacking();
    if (this.playing && this.timer === null) {
      if (grew)
        this.schedule(); // the pass that playing waited for
      else if (this.talk.pending === 0) this.pause();
    }
  }

  // Where to stand now: where the caller puts it, where this mount stood, or after a pass asked for.
  settle(before, header, caller, known) {
    const [step, layer, head, opened, substep] = caller.view;
    const kept = places.get(caller.key);
    const asked = this.follow && this.talk.target > known && this.store.passes.length > known;
    if (before !== this.store || this.move !== caller.move) {
      const same = before === null && kept && kept.move === caller.move && kept.run === header.run;
      this.state = same ? { ...kept.state } : { step, layer, head, opened, substep, grown: null };
      this.wanted = same ? null : step;
      if (this.mode === "prefill") this.state.step = 0;
    } else if (asked) {
      this.state = { ...this.state, step: this.store.passes.length - 1, substep: null, grown: null };
      this.talk.moved();
    }
    if (this.wanted !== null && this.wanted < this.store.passes.length) {
      this.state.step = this.wanted; // a place beyond the passes that had come so far
      this.wanted = null;
    }
    if (before === null && !caller.asked) this.takeOver(header.run);
    this.move = caller.move;
    this.clampState();
    this.remember();
  }

  // Where the last page's player stood, if Python has not heard of it. Whoever comes from prefill's step begins anew.
  takeOver(run) {
    const place = stood.get(run);
    if (!place) return;
    const step = this.mode === "prefill" ? this.state.step : place.step || this.state.step;
    const { layer, head } = place;
    if (step === this.state.step && layer === this.state.layer && head === this.state.head) return;
    this.state = { ...this.state, step, layer, head };
    this.talk.moved();
  }

  // For a mount of the same player that Streamlit makes anew, and for the next page's.
  remember() {
    const { step, layer, head } = this.state;
    const run = this.store.key;
    places.set(this.key, { move: this.move, run, state: { ...this.state, grown: null } });
    // Prefill's own step is always 0: the one the learner came with stays.
    stood.set(run, { step: this.mode === "prefill" ? stood.get(run)?.step : step, layer, head });
  }

  clampState() {
    const { state, store } = this;
    const { L, H } = store.model;
    state.step = clamp(state.step, 0, Math.max(0, store.passes.length - 1));
    state.layer = clamp(state.layer, 0, L - 1);
    state.head = clamp(state.head, 0, H - 1);
    if (!LEVELS.includes(state.opened)) state.opened = "all";
    if (state.substep !== null) state.substep = clamp(state.substep, 0, this.lastPart());
  }

  lastPart() {
    return this.mode === "prefill" ? PARTS.length - 1 : PARTS.length - 2;
  }

  room() {
    return this.store ? Math.max(0, this.limit - this.store.passes.length) : 0;
  }

  // ---- what the learner does --------------------------------------------------------------------

  go(change) {
    if (!this.store) return;
    const before = { ...this.state };
    this.state = { ...this.state, ...change };
    this.clampState();
    this.grow(before);
    if (this.state.opened !== before.opened) this.startMotion(before.opened);
    this.wanted = null;
    this.follow = false; // who walks on while a pass is computed is not called back
    this.remember();
    this.render();
    this.talk.moved();
    this.askIfLacking();
  }

  // One step to the right or left. To the right while playing only stops.
  walk(by) {
    if (!this.store) return;
    if (this.playing) {
      this.pause();
      if (by > 0) return;
    }
    if (this.mode === "prefill") return this.walkParts(by);
    const last = this.store.passes.length - 1;
    if (by > 0 && this.state.step >= last && this.canExtend) this.note("hint_next");
    this.go({ step: this.state.step + by, substep: null });
  }

  // One part of the pass on or back. Beyond the last part comes the next pass; before the first of
  // prefill's page the whole of it.
  walkParts(by) {
    const { substep, step } = this.state;
    const prefill = this.mode === "prefill";
    if (prefill && substep === null && by < 0) return undefined;
    const at = substep === null ? (by > 0 ? 0 : this.lastPart()) : substep + by;
    if (at >= 0 && at <= this.lastPart()) return this.go({ substep: at });
    if (prefill) return by < 0 ? this.go({ substep: null }) : undefined;
    const next = step + by;
    if (next < 0 || next >= this.store.passes.length) return this.go({ substep: null });
    return this.go({ step: next, substep: by > 0 ? 0 : this.lastPart() });
  }

  slide(to) {
    this.pause();
    this.go(this.mode === "prefill" ? { substep: to > 0 ? to - 1 : null } : { step: to, substep: null });
  }

  toEnd(side) {
    this.pause();
    if (this.mode === "prefill") this.go({ substep: side < 0 ? null : this.lastPart() });
    else this.go({ step: side < 0 ? 0 : this.store.passes.length - 1, substep: null });
  }

  open() {
    const level = LEVELS.indexOf(this.state.opened);
    if (this.store && this.store.passes.length && level < 2) this.go({ opened: LEVELS[level + 1] });
  }

  canGoBack() {
    return this.helpOpen || this.state.opened !== "all" || this.state.substep !== null;
  }

  back() {
    if (this.helpOpen) return this.toggleHelp(false);
    const level = LEVELS.indexOf(this.state.opened);
    return this.go(level > 0 ? { opened: LEVELS[level - 1] } : { substep: null });
  }

  extend() {
    if (!this.store || this.mode === "prefill" || !this.canExtend) return;
    if (this.room() <= this.talk.pending) return this.note("hint_full");
    this.pause();
    if (this.ready.show()) return;
    this.follow = true;
    this.talk.extend();
    this.render();
  }

  toggleHelp(open = !this.helpOpen) {
    this.helpOpen = open;
    this.help.windowed = Boolean(this.store && this.store.model.windows);
    this.help.open = open;
  }

  // ---- playing ----------------------------------------------------------------------------------

  setSpeed(index) {
    this.speed = index;
    if (this.playing) this.schedule();
  }

  togglePlay() {
    if (!this.store || !this.store.passes.length) return;
    if (this.playing) return this.pause();
    this.playing = true;
    if (this.atEnd() && !(this.canExtend && this.room() > 0)) {
      this.go({ step: 0, substep: null });
    }
    this.render();
    this.schedule();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    clearTimeout(this.timer);
    this.render();
  }

  atEnd() {
    if (this.mode === "prefill") return this.state.substep === this.lastPart();
    return (
      this.state.step >= this.store.passes.length - 1 &&
      (!SPEEDS[this.speed].parts || this.state.substep === this.lastPart())
    );
  }

  schedule() {
    clearTimeout(this.timer);
    const speed = SPEEDS[this.mode === "prefill" ? 0 : this.speed];
    this.timer = setTimeout(() => this.tick(), this.mode === "prefill" ? 1800 : speed.ms);
  }

  tick() {
    this.timer = null;
    if (!this.playing) return;
    if (this.atEnd()) {
      if (this.mode !== "prefill" && this.canExtend && this.room() > this.talk.pending) {
        if (this.ready.show()) return this.schedule();
        this.follow = true;
        this.talk.extend(); // goes on when the pass arrives
        return;
      }
      this.pause();
      return;
    }
    if (this.mode === "prefill" || SPEEDS[this.speed].parts) this.walkParts(1);
    else this.go({ step: this.state.step + 1, substep: null });
    this.schedule();
  }

  // ---- motion -----------------------------------------------------------------------------------

  // The square appears row by row when its scores are lit, for those who like motion.
  grow(before) {
    cancelAnimationFrame(this.growing);
    this.state.grown = null;
    const entered = this.state.substep === 3 && before.substep !== 3 && this.state.step === 0;
    if (!entered || STILL.matches) return;
    const rows = this.store.P;
    const start = performance.now();
    const tick = (now) => {
      const grown = Math.ceil(((now - start) / 700) * rows);
      this.state.grown = grown >= rows ? null : Math.max(1, grown);
      this.render();
      if (this.state.grown !== null) this.growing = requestAnimationFrame(tick);
    };
    this.state.grown = 1;
    this.growing = requestAnimationFrame(tick);
  }

  startMotion(from) {
    cancelAnimationFrame(this.moving);
    this.motion = null;
    if (STILL.matches) return;
    const start = performance.now();
    this.motion = { from, t: 0 };
    const tick = (now) => {
      const t = (now - start) / OPENING;
      this.motion = t >= 1 ? null : { from, t: 1 - (1 - Math.max(0, t)) ** 2 };
      this.render();
      if (this.motion) this.moving = requestAnimationFrame(tick);
    };
    this.moving = requestAnimationFrame(tick);
  }

  // A short hint beside the controls that leaves by itself.
  note(name) {
    this.hint = words.plain(name);
    clearTimeout(this.hintTimer);
    this.hintTimer = setTimeout(() => {
      this.hint = "";
      this.renderStatus();
    }, 4000);
    this.renderStatus();
  }

  // Ask Python for what is on screen and not here.
  askIfLacking() {
    const { store, state } = this;
    if (!store.passes.length) return;
    const { step, layer, head } = state;
    const T = store.passes[step].T;
    const slab = state.opened === "head" || state.substep !== null || this.mode === "prefill";
    const norms = store.headnorms.get(layer);
    const lacking =
      !store.hasAttention(layer, head, step) ||
      (slab && !store.slab(layer, head, T)) ||
      (state.opened === "layer" && (!norms || norms.count < T));
    if (lacking) this.talk.want();
  }

  // ---- pointer ----------------------------------------------------------------------------------

  listenToPointer() {
    const at = (event) => {
      const box = this.stage.getBoundingClientRect();
      const unit = this.last ? this.last.unit : 1;
      return [(event.clientX - box.left) / unit, (event.clientY - box.top) / unit];
    };
    this.stage.addEventListener("pointermove", (event) => {
      const box = this.root.getBoundingClientRect();
      this.pointer = { stage: at(event), root: [event.clientX - box.left, event.clientY - box.top] };
      this.canvas.style.cursor = this.last && this.target(...this.pointer.stage) ? "pointer" : "";
      this.point();
    });
    this.stage.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.point();
    });
    this.canvas.addEventListener("click", (event) => {
      const change = this.last && this.target(...at(event));
      if (change) this.go(change);
    });
  }

  // Say what is under the pointer, now that either has changed.
  point() {
    if (!this.pointer || !this.last) return this.tip.hide();
    return this.tip.show(describe(this.last, ...this.pointer.stage), ...this.pointer.root);
  }

  // What a click does: it chooses a layer or a head, and opens the chosen one; on attention it opens the head.
  target(x, y) {
    const { last, state } = this;
    if (!last.pass || state.opened === "head") return null;
    const { regions, store } = last;
    if (x > regions.gridWidth) return null;
    const inside = (r) => r && y >= r.y && y < r.y + r.h;
    if (inside(regions.square) || inside(regions.bars)) return { opened: "head" };
    if (!inside(regions.cache)) return null;
    if (state.opened === "layer") {
      const { head } = headAt(last, y);
      return head === state.head ? { opened: "head" } : { head };
    }
    const layer = Math.floor((y - regions.cache.y) / regions.row);
    if (layer >= store.model.L) return null;
    return layer === state.layer ? { opened: "layer" } : { layer };
  }

  destroy() {
    this.playing = false;
    clearTimeout(this.timer);
    clearTimeout(this.hintTimer);
    cancelAnimationFrame(this.moving);
    cancelAnimationFrame(this.growing);
    this.talk.close();
    this.keys.remove();
    this.sizes.disconnect();
    document.fonts.removeEventListener("loadingdone", this.repaint);
    this.root.remove();
  }
}
