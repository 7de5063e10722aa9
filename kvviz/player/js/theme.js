// Colours and fonts as the style sheet has them now; the canvas is painted with the same.

function luminance(colour) {
  const [r, g, b] = (colour.match(/[\d.]+/g) || [255, 255, 255]).map(Number);
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
}

// Light or dark by the background that Streamlit gives the page.
function applyTheme(root) {
  const probe = root.querySelector(".kvp-probe");
  root.dataset.theme = luminance(getComputedStyle(probe).backgroundColor) < 0.5 ? "dark" : "light";
  const style = getComputedStyle(root);
  const theme = { dark: root.dataset.theme === "dark", scale: 1 };
  for (const name of ["bg", "fg", "mut", "line", "card", "q", "k", "v", "w", "qt", "kt", "vt", "wt", "grey"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.font = style.fontFamily;
  theme.mono = getComputedStyle(root.querySelector(".kvp-mono-probe")).fontFamily;
  theme.wasted = hatch(theme.w, theme.dark ? 0.22 : 0.16, 2);
  theme.masked = hatch(theme.grey, theme.dark ? 0.14 : 0.1, 1.2);
  return theme;
}

// Slanted lines over a wash of the same colour, as a canvas pattern.
function hatch(colour, wash, width) {
  const ratio = 4;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6 * ratio;
  const ctx = tile.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.globalAlpha = wash;
  ctx.fillStyle = colour;
  ctx.fillRect(0, 0, 6, 6);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  for (const x of [-6, 0, 6]) {
    ctx.moveTo(x - 1, 7);
    ctx.lineTo(x + 7, -1);
  }
  ctx.stroke();
  const pattern = ctx.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}
