// Buttons, slider and speed for those who use a mouse.

const SPEEDS = [
  { name: "speed_parts", ms: 900, parts: true },
  { name: "speed_1", ms: 1000 },
  { name: "speed_2", ms: 500 },
  { name: "speed_4", ms: 250 },
];

class Controls {
  constructor(element, player) {
    this.player = player;
    this.element = element;
    this.back = this.button("◀", () => player.walk(-1));
    this.play = this.button("", () => player.togglePlay());
    this.play.classList.add("kvp-play");
    this.forward = this.button("▶", () => player.walk(1));
    this.next = this.button("", () => player.extend());
    this.next.classList.add("kvp-next");
    this.slider = make("input", "kvp-slider", element);
    this.slider.type = "range";
    this.slider.min = "0";
    this.slider.addEventListener("input", () => player.slide(Number(this.slider.value)));
    this.count = make("span", "kvp-num kvp-count", element);
    this.speed = make("select", "kvp-speed", element);
    SPEEDS.forEach((_, i) => (make("option", "", this.speed).value = String(i)));
    this.speed.value = "1";
    this.speed.addEventListener("change", () => {
      player.setSpeed(Number(this.speed.value));
      this.speed.blur(); // the arrows step again
    });
    this.help = this.button("?", () => player.toggleHelp());
  }

  button(text, action) {
    const button = make("button", "", this.element, text);
    button.type = "button";
    button.addEventListener("mousedown", (event) => event.preventDefault()); // keys stay page-wide after a click
    button.addEventListener("click", action);
    return button;
  }

  name(element, text) {
    if (element.getAttribute("aria-label") === text) return;
    element.setAttribute("aria-label", text);
    element.title = text;
  }

  render(scene) {
    const { player } = this;
    const { state, store } = scene;
    const prefill = player.mode === "prefill";
    const most = prefill ? PARTS.length : Math.max(0, store.passes.length - 1);
    const part = state.substep === null ? 0 : state.substep + 1; // 0: the whole pass
    const at = prefill ? part : Math.max(0, state.step);
    this.name(this.back, words.plain("button_back"));
    this.name(this.forward, words.plain("button_forward"));
    this.name(this.slider, words.plain(prefill ? "slider_parts" : "slider_steps"));
    this.name(this.speed, words.plain("speed"));
    this.name(this.help, words.plain("key_help"));
    setText(this.play, words.plain(player.playing ? "pause" : "play"));
    this.name(this.next, words.plain("key_next"));
    setText(this.next, words.plain("button_next"));
    this.next.hidden = prefill || !player.canExtend;
    this.next.disabled = player.room() <= 0;
    this.back.disabled = at <= 0 && state.substep === null;
    this.forward.disabled = at >= most && !(player.canExtend && player.playing);
    if (this.slider.max !== String(most)) this.slider.max = String(most);
    if (this.slider.value !== String(at)) this.slider.value = String(at);
    this.slider.disabled = most === 0;
    setText(this.count, `${at} / ${most}`);
    this.slider.setAttribute(
      "aria-valuetext",
      prefill && part ? words.plain(`part_${PARTS[part - 1].name}`) : player.phase(),
    );
    SPEEDS.forEach((speed, i) => setText(this.speed.options[i], words.plain(speed.name)));
    const hidden = prefill;
    this.speed.hidden = hidden;
  }
}
