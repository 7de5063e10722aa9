// Numbers in and out: halves from Python, figures for the reader.

// Every IEEE half as a number, made once: index the table with the 16 bits.
const HALF = (() => {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let value;
    if (exponent === 0) value = fraction * 2 ** -24;
    else if (exponent === 31) value = fraction ? NaN : Infinity;
    else value = (1 + fraction / 1024) * 2 ** (exponent - 15);
    table[bits] = bits & 32768 ? -value : value;
  }
  return table;
})();

const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const lerp = (a, b, t) => a + (b - a) * t;
const GROUPED = new Intl.NumberFormat("en-US");
const integer = (n) => GROUPED.format(n);

// Three significant digits, no exponent between 0.001 and 100,000.
function digits3(x) {
  if (typeof x !== "number") return String(x);
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size < 0.001 || size >= 100000) return minus(x.toExponential(2));
  return minus(size >= 100 ? x.toFixed(0) : x.toPrecision(3));
}

// A difference or a tolerance: 2.9e-5, 1e-3, 0; 0.25 where it is large.
function scientific(x) {
  if (typeof x !== "number") return String(x);
  if (x === 0) return "0";
  if (x >= 0.01) return String(Number(x.toPrecision(2)));
  return x.toExponential(1).replace(".0e", "e");
}

const minus = (s) => s.replace(/^-/, "−");
const percent = (p) => `${(100 * p).toFixed(1)}%`;

// A weight under its bar: .65, 0 below half a hundredth.
function hundredths(w) {
  if (w < 0.005) return "0";
  return w > 0.995 ? "1" : w.toFixed(2).slice(1);
}

function milliseconds(ms) {
  return ms >= 100 ? ms.toFixed(0) : ms.toFixed(1);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Index of the largest of f(0) .. f(n-1).
function largest(n, f) {
  let best = 0;
  for (let i = 1; i < n; i++) if (f(i) > f(best)) best = i;
  return best;
}
