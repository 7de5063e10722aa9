// The sheet of keys, and what the marks mean.

const KEYS_SHOWN = [
  [["→", "←"], "key_step"],
  [["PgDn", "PgUp"], "key_step_clicker"],
  [["Space"], "key_play"],
  [["Shift →", "Shift ←"], "key_part"],
  [["↑", "↓"], "key_layer"],
  [["[", "]", ",", "."], "key_head"],
  [["Enter"], "key_open"],
  [["Esc"], "key_back"],
  [["Home", "End"], "key_ends"],
  [["N"], "key_next"],
  [["?"], "key_help"],
];
const MARKS_SHOWN = [
  ["q", "mark_q"],
  ["k", "mark_k"],
  ["v", "mark_v"],
  ["new", "mark_new"],
  ["reused", "mark_reused"],
  ["wasted", "mark_wasted"],
  ["masked", "mark_masked"],
  ["gen", "mark_generated"],
];

class Help {
  constructor(element, onClose) {
    this.element = element;
    this.onClose = onClose;
    this.windowed = false; // some layers of the model have a window
    element.setAttribute("role", "dialog");
    element.setAttribute("aria-modal", "false");
    element.tabIndex = -1;
  }

  build() {
    const title = make("h2", "", null, words.plain("help_title"));
    title.id = "kvp-help-title";
    this.element.setAttribute("aria-labelledby", title.id);
    const close = make("button", "kvp-close", null, words.plain("close"));
    close.type = "button";
    close.addEventListener("click", this.onClose);
    const keys = make("dl", "kvp-keys");
    for (const [names, meaning] of KEYS_SHOWN) {
      const dt = make("dt", "", keys);
      names.forEach((name) => make("kbd", "", dt, name));
      make("dd", "", keys, words.plain(meaning));
    }
    const marks = make("ul", "kvp-marks");
    for (const [kind, meaning] of MARKS_SHOWN) {
      const item = make("li", "", marks);
      make("i", `kvp-swatch ${kind}`, item);
      make("span", "", item, words.plain(kind === "masked" && this.windowed ? "mark_masked_window" : meaning));
    }
    this.element.replaceChildren(title, close, keys, marks);
  }

  set open(open) {
    if (open) this.build();
    this.element.hidden = !open;
    if (open) this.element.focus({ preventScroll: true });
  }
}
