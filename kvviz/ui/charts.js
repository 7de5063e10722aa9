// A Plotly figure that stays in place: the same element is redrawn when its data change, so a reader's zoom
// survives a step, and it is recoloured for the page's theme without asking Python. A figure that nobody can see waits
// with its latest data until it comes near: whoever steps through the player above pays for no charts below.

const wait = new Map(); // host -> latest data, so that drawings never overlap

export default function (component) {
  const { data, parentElement } = component;
  const host = parentElement.querySelector(".kvc") ?? build(parentElement);
  const style = getComputedStyle(parentElement);
  const ground = style.getPropertyValue("--st-background-color").trim();
  host.style.height = `${data.height}px`; // also before it is drawn: any part of it that comes near counts
  const busy = wait.has(host);
  wait.set(host, { data, dark: isDark(ground) });
  if (!busy) draw(host);
  // Also called for a call that React gave up on, whose element stays.
  return () => setTimeout(() => {
    if (host.isConnected) return;
    host.approach.disconnect();
    host.watcher?.disconnect();
    wait.delete(host);
    if (window.Plotly && host.plot) window.Plotly.purge(host.plot);
  }, 100);
}

function build(parent) {
  const host = document.createElement("div");
  host.className = "kvc";
  host.dataset.testid = "kv-chart";
  host.setAttribute("role", "img");
  host.plot = document.createElement("div");
  host.append(host.plot);
  parent.append(host);
  host.approach = new IntersectionObserver(
    (seen) => {
      host.near = seen.at(-1).isIntersecting;
      if (host.near) host.called?.();
    },
    // What scrolls is not the window: a margin around the window would end at the edge of what scrolls.
    { root: parent.closest("[data-testid=stMain]"), rootMargin: "150px" },
  );
  host.approach.observe(host);
  return host;
}

const near = (host) => (host.near ? null : new Promise((come) => (host.called = come)));

async function draw(host) {
  try {
    while (wait.get(host)) {
      await near(host);
      const { data, dark } = wait.get(host);
      wait.set(host, null);
      await paint(host, data, dark);
    }
  } finally {
    wait.delete(host);
  }
}

async function paint(host, data, dark) {
  // Streamlit's own chart module brings Plotly; importing it by the name the server found loads it once for all.
  if (!window.Plotly) await import(new URL(data.module, document.baseURI).href);
  const figure = recolour(JSON.parse(data.figure), exchange(data.themes, dark));
  host.setAttribute("aria-label", data.alt);
  host.dataset.key = data.key;
  // A figure may have a width of its own (the attention square); it gives way where the page is narrower.
  host.fullWidth = figure.layout.width ?? Infinity;
  figure.layout.width = Math.min(host.fullWidth, host.clientWidth);
  // New settings make Plotly start afresh, zoom and all, so they are the same object until a word changes.
  const wording = JSON.stringify([data.words, data.file]);
  if (host.wording !== wording) {
    host.settings = settings(data);
    host.wording = wording;
  }
  await window.Plotly.react(host.plot, figure.data, figure.layout, host.settings);
  if (!host.watcher) {
    host.watcher = new ResizeObserver(() => {
      const width = Math.min(host.fullWidth, host.clientWidth);
      if (width && width !== host.plot.layout.width) window.Plotly.relayout(host.plot, { width });
    });
    host.watcher.observe(host);
  }
  host.dataset.theme = dark ? "dark" : "light";
  host.dataset.drawn = String(Number(host.dataset.drawn ?? 0) + 1);
}

function settings({ words, file }) {
  const save = (format) => ({
    name: format,
    title: words[`save_${format}`],
    icon: window.Plotly.Icons.camera,
    click: (plot) => window.Plotly.downloadImage(plot, { format, filename: file, scale: format === "png" ? 3 : 1 }),
  });
  return {
    displaylogo: false,
    showTips: false,
    typesetMath: false,
    locale: "kvviz",
    locales: {
      kvviz: { dictionary: { Zoom: words.zoom, Pan: words.pan, "Reset axes": words.reset }, format: {} },
    },
    modeBarButtons: [[save("png"), save("svg")], ["zoom2d", "pan2d", "resetScale2d"]],
  };
}

// "#rrggbb" or "rgb(r, g, b)"; what can't be read counts as light.
function isDark(colour) {
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})/i.exec(colour);
  const parts = hex ? hex.slice(1, 4).map((c) => parseInt(c, 16)) : (colour.match(/\d+/g) ?? []).slice(0, 3).map(Number);
  return parts.length === 3 && 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] < 128;
}

function exchange(themes, dark) {
  const to = dark ? themes.dark : themes.light;
  const map = new Map();
  for (const role of Object.keys(to)) {
    map.set(themes.light[role], to[role]);
    map.set(themes.dark[role], to[role]);
  }
  return map;
}

// Only values under a key that speaks of colour: a token that reads "#0072b2" stays what it is.
function recolour(value, map, inColour = false) {
  if (typeof value === "string") return inColour ? (map.get(value.toLowerCase()) ?? value) : value;
  if (Array.isArray(value)) return inColour ? value.map((v) => recolour(v, map, true)) : value.map((v) => (v && typeof v === "object" ? recolour(v, map) : v));
  if (value && typeof value === "object") {
    for (const key of Object.keys(value)) value[key] = recolour(value[key], map, inColour || /colou?r/i.test(key));
  }
  return value;
}
