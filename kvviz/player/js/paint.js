// Small strokes that all pictures share. `p` is a Painter: a 2D context with the theme and the scale.

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d");
    this.theme = null;
    this.scale = 1;
  }

  // Size the canvas for a stage of width x height design pixels, `unit` CSS pixels each, and clear it.
  begin(width, height, unit) {
    const ratio = window.devicePixelRatio || 1;
    const w = Math.round(width * unit * ratio);
    const h = Math.round(height * unit * ratio);
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.width = `${width * unit}px`;
      this.canvas.style.height = `${height * unit}px`;
    }
    this.scale = unit * ratio;
    this.ctx.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    this.ctx.clearRect(0, 0, width, height);
    this.ctx.globalAlpha = 1;
  }

  // Run `draw` with everything in it at this opacity.
  faded(alpha, draw) {
    const before = this.ctx.globalAlpha;
    this.ctx.globalAlpha = before * alpha;
    draw();
    this.ctx.globalAlpha = before;
  }

  box(x, y, w, h, fill, alpha = 1) {
    const before = this.ctx.globalAlpha;
    this.ctx.globalAlpha = before * alpha;
    this.ctx.fillStyle = fill;
    this.ctx.fillRect(x, y, w, h);
    this.ctx.globalAlpha = before;
  }

  // Many boxes of one colour: `draw` gets a function (x, y, w, h, alpha).
  washed(fill, draw) {
    const { ctx } = this;
    const before = ctx.globalAlpha;
    ctx.fillStyle = fill;
    draw((x, y, w, h, alpha) => {
      ctx.globalAlpha = before * alpha;
      ctx.fillRect(x, y, w, h);
    });
    ctx.globalAlpha = before;
  }

  round(x, y, w, h, radius, { fill, stroke, width = 1, dash } = {}) {
    const { ctx } = this;
    ctx.beginPath();
    ctx.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
    if (fill) {
      ctx.fillStyle = fill;
      ctx.fill();
    }
    if (stroke) {
      ctx.strokeStyle = stroke;
      ctx.lineWidth = width;
      if (dash) ctx.setLineDash(dash);
      ctx.stroke();
      if (dash) ctx.setLineDash([]);
    }
  }

  // Many rounded boxes of one style in one path: [x, y, w, h] each.
  rounds(boxes, radius, { fill, stroke, width = 1 }) {
    if (!boxes.length) return;
    const { ctx } = this;
    ctx.beginPath();
    for (const [x, y, w, h] of boxes) ctx.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
    if (fill) {
      ctx.fillStyle = fill;
      ctx.fill();
    }
    if (stroke) {
      ctx.strokeStyle = stroke;
      ctx.lineWidth = width;
      ctx.stroke();
    }
  }

  line(x1, y1, x2, y2, stroke, width = 1) {
    const { ctx } = this;
    ctx.strokeStyle = stroke;
    ctx.lineWidth = width;
    ctx.beginPath();
    ctx.moveTo(x1, y1);
    ctx.lineTo(x2, y2);
    ctx.stroke();
  }

  text(text, x, y, { size = 12, colour, align = "left", weight = 400, mono = false, most } = {}) {
    const { ctx, theme } = this;
    ctx.font = `${weight} ${size}px ${mono ? theme.mono : theme.font}`;
    ctx.textAlign = align;
    ctx.textBaseline = "alphabetic";
    ctx.fillStyle = colour || theme.fg;
    ctx.fillText(most ? this.cut(text, most) : text, x, y);
  }

  // The text in the current font, cut to a width with an ellipsis.
  cut(text, most) {
    const { ctx } = this;
    if (ctx.measureText(text).width <= most) return text;
    let end = text.length;
    while (end > 1 && ctx.measureText(`${text.slice(0, end)}…`).width > most) end--;
    return `${text.slice(0, end)}…`;
  }
}
