// Replay at measured speed: one clock, two lanes that each need their own medians.

// How many of the passes, whose cumulative times are `ends`, are through after `ms`.
function kvrThrough(ends, ms) {
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] <= ms + 1e-9) low = middle + 1;
    else high = middle;
  }
  return low;
}

class KvrReplay {
  // `paint(ms)` draws the state after that many measured milliseconds; `ended()` is called once at the end.
  constructor(paint, ended) {
    this.paint = paint;
    this.ended = ended;
    this.frame = 0;
  }

  get running() {
    return this.frame !== 0;
  }

  // `total` measured ms, shown `stretch` times as long (2: half speed).
  start(total, stretch) {
    this.stop();
    let first;
    const tick = (now) => {
      first ??= now;
      const ms = Math.min(total, (now - first) / stretch);
      this.paint(ms);
      if (ms < total) {
        this.frame = requestAnimationFrame(tick);
        return;
      }
      this.frame = 0;
      this.ended();
    };
    this.frame = requestAnimationFrame(tick);
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }
}
