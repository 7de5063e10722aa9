// Keys of the whole page, but never those of somebody who types or uses another widget.

const TYPING = [
  "input, textarea, select, [contenteditable=''], [contenteditable='true'], [role='textbox'], [role='combobox']",
  "[role='listbox'], [role='option'], [role='menu'], [role='menuitem'], [role='grid'], [role='dialog']",
  "[data-baseweb='popover'], canvas[data-testid='data-grid-canvas']",
].join();
const PRESSES =
  "button, a[href], summary, [role='button'], [role='checkbox'], [role='switch'], [role='tab'], [role='radio']";
const SLIDES = "[role='slider'], [role='tab'], [role='radio'], [role='separator'], audio, video";
const ARROWS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

// Whether the element that has the focus uses this key itself.
function taken(event, root) {
  const target = event.target instanceof Element ? event.target : document.body;
  const inside = root.contains(target);
  if (target.isContentEditable) return true;
  if (target.matches("input[type=checkbox]")) return event.key === " ";
  if (inside && target.matches("input[type=range]")) return false; // the slider's keys are the page's
  if (inside && target.closest(".kvp-help"))
    return target.closest("button") !== null && (event.key === "Enter" || event.key === " ");
  if (target.closest(TYPING)) return true;
  if (target.closest(PRESSES) && (event.key === "Enter" || event.key === " ")) return true;
  return target.closest(SLIDES) !== null && ARROWS.has(event.key);
}

class Keys {
  constructor(player) {
    this.player = player;
    this.listener = (event) => this.pressed(event);
    document.addEventListener("keydown", this.listener);
  }

  remove() {
    document.removeEventListener("keydown", this.listener);
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    const { player } = this;
    if (!player.root.isConnected || taken(event, player.root)) return;
    const action = this.action(event);
    if (!action) return;
    event.preventDefault();
    action();
  }

  action(event) {
    const { player } = this;
    const part = event.shiftKey;
    switch (event.key) {
      case "ArrowRight":
        return () => (part ? player.walkParts(1) : player.walk(1));
      case "ArrowLeft":
        return () => (part ? player.walkParts(-1) : player.walk(-1));
      case "PageDown":
        return () => player.walk(1);
      case "PageUp":
        return () => player.walk(-1);
      case "ArrowUp":
        return () => player.go({ layer: player.state.layer - 1 });
      case "ArrowDown":
        return () => player.go({ layer: player.state.layer + 1 });
      case "[":
      case ",":
        return () => player.go({ head: player.state.head - 1 });
      case "]":
      case ".":
        return () => player.go({ head: player.state.head + 1 });
      case " ":
        return () => player.togglePlay();
      case "Enter":
        return () => player.open();
      case "Escape":
        return player.canGoBack() ? () => player.back() : null;
      case "Home":
        return () => player.toEnd(-1);
      case "End":
        return () => player.toEnd(1);
      case "n":
      case "N":
        if (!player.canExtend) return null;
        return () => (event.repeat && player.talk.pending ? undefined : player.extend()); // held down: one at a time
      case "?":
        return () => player.toggleHelp();
      default:
        return null;
    }
  }
}
