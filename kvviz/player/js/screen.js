// The player's elements, and one render for all that is on screen.

const LEVELS = ["all", "layer", "head"];

class Screen {
  build() {
    const { root } = this;
    root.setAttribute("role", "region");
    make("i", "kvp-probe", root);
    make("i", "kvp-mono-probe", root);
    const head = make("div", "kvp-head", root);
    this.phaseElement = make("strong", "kvp-phase", head);
    this.say = make("span", "kvp-say", head);
    this.say.setAttribute("aria-live", "polite");
    this.pipe = make("div", "kvp-pipe", root);
    this.main = make("div", "kvp-main", root);
    this.stage = make("div", "kvp-stage", this.main);
    this.canvas = make("canvas", "", this.stage);
    this.canvas.setAttribute("role", "img");
    this.canvas.tabIndex = 0;
    this.strip = new Strip(make("div", "kvp-strip", this.stage));
    this.side = make("div", "kvp-side", this.main);
    this.cards = new Cards(this.side);
    this.proofs = new ProofStrip(make("div", "kvp-proof", root));
    const controls = make("div", "kvp-ctl", root);
    this.controls = new Controls(controls, this);
    this.status = make("span", "kvp-status", controls);
    this.status.setAttribute("role", "status");
    this.help = new Help(make("div", "kvp-help", root), () => this.toggleHelp(false));
    this.help.open = false;
    this.tip = new Tip(make("div", "kvp-tip", root), root);
    this.tip.hide();
    this.painter = new Painter(this.canvas);
    this.listenToPointer();
  }

  // ---- everything on screen ---------------------------------------------------------------------

  scene() {
    const { store, state } = this;
    const s = store.passes.length ? state.step : -1;
    const pass = s < 0 ? null : store.passes[s];
    const T = pass ? pass.T : store.P;
    const wide = this.root.clientWidth >= 900;
    const { unit, width, height } = this.fit(wide);
    const regions = regionsFor({ width, height, wide, mode: this.mode, L: store.model.L, T, prefill: s === 0 });
    return {
      store,
      state,
      s,
      pass,
      T,
      newFrom: pass ? pass.before : T,
      regions,
      unit,
      mode: this.mode,
      canExtend: this.canExtend,
    };
  }

  // One design pixel in CSS pixels, and the room in design pixels.
  fit(wide) {
    const W = this.root.clientWidth;
    const tall = window.innerHeight;
    // What stands above the player and a little below; Large may take some of its width, which costs columns.
    const [above, least] = this.presenter ? [182, 852] : [190, 980];
    const unit = wide ? clamp(Math.min(W / least, (tall - above) / 640), 1, 1.7) : 1;
    return { unit, width: W / unit, height: tall <= 660 ? 590 : 640 };
  }

  render() {
    if (!this.store || !this.root.isConnected || !this.root.clientWidth || !this.painter.theme) return;
    const scene = this.scene();
    this.last = scene;
    const { state, store, T, s } = scene;
    const { root } = this;
    const frame = `${scene.unit}|${scene.regions.stage}`;
    if (this.frame !== frame) {
      root.style.setProperty("--u", String(scene.unit));
      this.stage.style.height = `${scene.regions.stage * scene.unit}px`;
      this.frame = frame;
    }
    root.classList.toggle("narrow", !scene.regions.wide);
    root.classList.toggle("head-opened", state.opened === "head");
    this.paint(scene);
    this.strip.render(scene, scene.unit);
    this.cards.render(scene);
    this.proofs.render(scene);
    this.controls.render(scene);
    setText(this.phaseElement, this.phase());
    sayPass(this.say, scene);
    this.renderPipe(state);
    this.renderStatus();
    this.canvas.setAttribute("aria-label", describePicture(scene));
    const facts = {
      step: s,
      steps: store.passes.length,
      cacheLength: s < 0 ? 0 : T,
      layer: state.layer,
      head: state.head,
      opened: state.opened,
      substep: state.substep === null ? "" : state.substep,
      run: store.key,
    };
    for (const [name, value] of Object.entries(facts)) {
      if (root.dataset[name] !== String(value)) root.dataset[name] = String(value);
    }
    if (this.pointer) this.point();
  }

  paint(scene) {
    const { painter: p } = this;
    const { regions } = scene;
    p.begin(regions.width, regions.stage, scene.unit);
    const { opened } = scene.state;
    if (!this.motion) return this.paintLevel(scene, opened);
    const { from, t } = this.motion;
    const inward = LEVELS.indexOf(opened) > LEVELS.indexOf(from);
    const inner = inward ? opened : from;
    const part = inward ? t : 1 - t;
    p.faded(1 - part, () => this.paintLevel(scene, inward ? from : opened));
    p.ctx.save();
    const source = scene.regions.cache.y + scene.state.layer * scene.regions.row;
    p.ctx.translate(0, lerp(source, 0, part));
    p.ctx.scale(1, lerp(0.08, 1, part));
    p.faded(part, () => this.paintLevel(scene, inner));
    p.ctx.restore();
    return undefined;
  }

  paintLevel(scene, level) {
    const { painter: p } = this;
    const inner = { ...scene, state: { ...scene.state, opened: level } };
    if (level === "head" && scene.pass) return drawHead(p, inner);
    drawPositions(p, inner);
    drawCacheTitle(p, inner);
    if (!scene.pass) return undefined;
    if (level === "layer") drawLayer(p, inner);
    else drawCache(p, inner);
    if (scene.s === 0 && scene.regions.square) drawSquare(p, inner);
    else if (scene.regions.square) drawEarlierQueries(p, inner);
    if (scene.regions.bars) drawAttention(p, inner);
    if (scene.regions.lanes) drawLanes(p, inner);
    drawPredictions(p, inner);
    return undefined;
  }

  phase() {
    const { store, state } = this;
    if (!store.passes.length) return words.plain("phase_none");
    if (state.opened === "head") return words.plain("phase_head", { layer: state.layer, head: state.head });
    return state.step === 0 ? words.plain("prefill") : words.plain("decode_n", { step: state.step });
  }

  // The parts of a pass, as buttons.
  buildPipe() {
    const key = `${words.language}|${this.mode}`;
    if (this.pipeKey === key) return;
    this.pipeKey = key;
    this.root.setAttribute("aria-label", words.plain("player_name"));
    this.pipe.replaceChildren();
    this.parts = PARTS.slice(0, this.lastPart() + 1).map((part, i) => {
      if (i) make("i", "", this.pipe, "→").setAttribute("aria-hidden", "true");
      const button = make("button", "", this.pipe, words.plain(`part_${part.name}`));
      button.type = "button";
      button.addEventListener("mousedown", (event) => event.preventDefault());
      button.addEventListener("click", () => this.go({ substep: this.state.substep === i ? null : i }));
      return button;
    });
  }

  renderPipe(state) {
    this.parts.forEach((button, i) => {
      const on = state.substep === i;
      if (button.getAttribute("aria-pressed") !== String(on)) button.setAttribute("aria-pressed", String(on));
    });
  }

  renderStatus() {
    const { pending } = this.talk;
    setText(this.status, this.busy || (pending ? words.plain("computing", { tokens: pending }) : this.hint || ""));
  }
}
