// Builds the two lanes once, then follows `data`. Texts come ready from Python; only the replay's clock is made here.

const kvrMounts = new WeakMap();

function kvrTime(ms) {
  const digits = ms < 100 ? 1 : 0;
  return ms.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + " ms";
}

class KvrRace {
  constructor(root) {
    this.root = root;
    root.className = "kvr";
    root.dataset.testid = "kv-race";
    kvrHatch(root);
    const head = kvrNode("div", "kvr-head", root);
    this.phase = kvrNode("div", "kvr-phase", head);
    this.say = kvrNode("div", "kvr-say", head);
    this.lanes = { uncached: new KvrLane(root, false), cached: new KvrLane(root, true) };
    this.times = kvrNode("div", "kvr-times", root);
    this.tracks = {};
    for (const lane of ["uncached", "cached"]) {
      const label = kvrNode("span", "", this.times);
      const track = kvrNode("div", "kvr-track", this.times);
      const bar = kvrNode("div", lane === "uncached" ? "kvr-bar kvr-striped" : "kvr-bar", track);
      const text = kvrNode("div", "kvr-ms", track);
      this.tracks[lane] = { label, bar, number: kvrNode("span", "", text), mark: kvrNode("i", "", text), text };
    }
    const ratio = kvrNode("div", "kvr-ratio", this.times);
    this.ratio = kvrNode("b", "", ratio);
    this.ratioNote = kvrNode("span", "", ratio);
    this.proof = kvrNode("div", "kvr-proof", root);
    const foot = kvrNode("div", "kvr-foot", root);
    this.button = kvrNode("button", "", foot);
    this.button.type = "button";
    this.speed = kvrNode("span", "", foot);
    this.replay = new KvrReplay((ms) => this.paintReplay(ms), () => this.settle());
    this.button.onclick = () => (this.replay.running ? this.settle() : this.play());
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.resized = new ResizeObserver(() => this.relayout());
    this.resized.observe(root);
    this.seen = null;
  }

  update(data) {
    const before = this.data;
    this.data = data;
    this.root.lang = data.language;
    this.root.classList.toggle("kvr-big", data.presenter);
    this.ends = { uncached: data.lanes.uncached.ends, cached: data.lanes.cached.ends };
    for (const [name, lane] of Object.entries(this.lanes)) {
      lane.update(data, data.lanes[name]);
      this.tracks[name].label.textContent = data.lanes[name].time;
    }
    kvrSay(this.say, data.say);
    this.ratio.textContent = data.ratio.value;
    this.ratioNote.textContent = data.ratio.note;
    this.proof.replaceChildren(...data.proofs.map(([name, text, verdict]) => {
      const item = kvrNode("span", `kvr-${verdict}`);
      const bold = kvrNode("b", "", item);
      bold.textContent = name;
      item.append(" " + text);
      return item;
    }));
    this.button.hidden = !data.replay;
    if (this.replay.running && data.id === this.seen) {
      this.buttonText();
      return;
    }
    this.replay.stop();
    // A race seen ending here is replayed by itself, once; one that was over when the page came is not.
    const ended = data.replay && before && before.id === data.id && !before.replay;
    this.seen = data.id;
    if (ended && !this.still.matches) this.play();
    else this.settle();
  }

  play() {
    if (!this.data.replay) return;
    this.phase.textContent = this.data.words.replay;
    this.root.dataset.replay = "running";
    this.replay.start(this.span(), this.data.replay.stretch);
    this.buttonText();
  }

  span() {
    return Math.max(0, ...["uncached", "cached"].map((lane) => this.ends[lane].at(-1) ?? 0));
  }

  paintReplay(ms) {
    const total = this.span();
    for (const lane of ["uncached", "cached"]) {
      const own = this.ends[lane].at(-1);
      this.lanes[lane].show(kvrThrough(this.ends[lane], ms));
      this.track(lane, Math.min(ms, own), Math.min(ms, own) / total, ms >= own && this.data.first === lane);
    }
  }

  // Everything that has been measured so far, standing still.
  settle() {
    this.replay.stop();
    const { data } = this;
    this.phase.textContent = data.phase;
    const total = this.span();
    for (const lane of ["uncached", "cached"]) {
      const own = this.ends[lane].at(-1) ?? 0;
      this.lanes[lane].show(data.tokens.length);
      this.track(lane, own, total ? (own / total) * (data.tokens.length / data.N) : 0, data.first === lane);
    }
    this.root.dataset.state = data.state;
    this.root.dataset.tokens = data.tokens.length;
    this.root.dataset.replay = data.replay ? "ended" : "none";
    this.buttonText();
  }

  track(lane, ms, part, first) {
    const { bar, text, number, mark } = this.tracks[lane];
    const percent = `${(part * 100).toFixed(2)}%`;
    bar.style.width = percent;
    bar.hidden = !part;
    text.style.left = percent;
    number.textContent = kvrTime(ms);
    mark.textContent = first ? this.data.words.first : "";
  }

  buttonText() {
    const { words, replay } = this.data;
    this.button.textContent = this.replay.running ? words.skip : words.again;
    this.speed.textContent = replay ? replay.text : words.live;
  }

  relayout() {
    if (!this.data) return;
    for (const lane of Object.values(this.lanes)) {
      lane.layout();
      lane.show(lane.wanted);
    }
  }

  remove() {
    this.replay.stop();
    this.resized.disconnect();
  }
}

export default function (component) {
  const { parentElement, data } = component;
  let race = kvrMounts.get(parentElement);
  if (!race) {
    race = new KvrRace(kvrNode("div", "", parentElement));
    kvrMounts.set(parentElement, race);
  }
  race.update(data);
  // Streamlit calls this before every update too, with the element still in place.
  return () => setTimeout(() => {
    if (race.root.isConnected) return;
    race.remove();
    kvrMounts.delete(parentElement);
  });
}
