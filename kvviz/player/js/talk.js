// Talking with Python: where the learner stands (debounced), what is lacking, how many passes to reach.

const REPORT_AFTER = 300; // milliseconds of rest: what follows the step below the player is drawn anew then
const ASK_AGAIN = 4000; // milliseconds without an answer
const LOW = 8; // passes made ahead: when no more are left, others are fetched
const FILL_AFTER = 500; // milliseconds until Python is asked whether more have been made
const LEAVING = 2500; // milliseconds of silence after a click on a link: a message would run the page that is left
const TRIES = 3; // for one lacking thing, until the learner moves again

class Talk {
  constructor(player) {
    this.player = player;
    this.send = null; // Streamlit's functions of the latest call
    this.reported = "";
    this.tries = 0;
    this.target = 0; // passes asked for
    this.asked = 0; // passes of the request under way
    this.quiet = null; // while a page change may be under way: the next page's player tells what is left to tell
    this.listener = (event) => {
      if (event.type === "popstate" || event.target.closest?.("a[href]")) this.leave();
    };
    document.addEventListener("click", this.listener, true);
    window.addEventListener("popstate", this.listener);
  }

  leave() {
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => {
      this.quiet = null;
      this.moved();
      this.ask();
      if (this.player.store) this.player.askIfLacking();
    }, LEAVING);
  }

  close() {
    this.forget();
    clearTimeout(this.quiet);
    document.removeEventListener("click", this.listener, true);
    window.removeEventListener("popstate", this.listener);
  }

  place() {
    const { step, layer, head, opened, substep } = this.player.state;
    return [step, layer, head, opened, substep];
  }

  now() {
    const { store } = this.player;
    return JSON.stringify([store.key, this.place(), store.passes.length]);
  }

  message(more) {
    const { store } = this.player;
    const place = this.place();
    return { run: store.key, move: this.player.move, view: place, passes: store.passes.length, ...more };
  }

  // The learner moved: tell Streamlit once they rest.
  moved() {
    this.tries = 0;
    clearTimeout(this.reportTimer);
    this.reportTimer = setTimeout(() => this.report(), REPORT_AFTER);
  }

  report() {
    const { store } = this.player;
    if (!store || !this.send || this.quiet || this.asked > store.passes.length) return; // the answer's message follows
    if (this.reported === this.now()) return;
    this.reported = this.now();
    this.send.setStateValue("view", this.message({}));
  }

  // Ask for what is lacking, at most once until the answer comes.
  want() {
    if (this.waiting || this.tries >= TRIES || !this.send || this.quiet) return;
    this.tries++;
    this.waiting = setTimeout(() => (this.waiting = null), ASK_AGAIN);
    const { store } = this.player;
    this.send.setTriggerValue("want", this.message({ have: store.have(words.language) }));
  }

  // A pass that was made ahead is shown. Python hears of it when the learner rests, or before none is left.
  shown(left) {
    this.moved();
    if (left <= LOW) this.refill();
  }

  // More passes to show at once, now or (while Python makes them) in a moment.
  refill() {
    clearTimeout(this.filling);
    this.filling = null;
    if (this.waiting || this.asked || !this.send || this.quiet) return;
    this.waiting = setTimeout(() => (this.waiting = null), ASK_AGAIN);
    this.send.setTriggerValue("want", this.message({ have: this.player.store.have(words.language) }));
  }

  prepare(preparing) {
    clearTimeout(this.filling);
    this.filling = preparing ? setTimeout(() => this.refill(), FILL_AFTER) : null;
  }

  // Another run is on its way: ask after it, should the page have missed that it has come.
  lookOut(coming) {
    clearTimeout(this.outlook);
    const ask = () => {
      if (!this.quiet) this.send.setTriggerValue("want", this.message({ have: this.player.store.have(words.language) }));
    };
    this.outlook = coming ? setTimeout(ask, ASK_AGAIN) : null;
  }

  // One more pass. Presses add up: the target is absolute, so each counts once however messages travel.
  extend() {
    const { store } = this.player;
    const known = store.passes.length;
    this.target = Math.min(Math.max(this.target, known) + 1, known + this.player.room());
    this.ask();
  }

  ask() {
    const { store } = this.player;
    if (this.target <= store.passes.length || this.asking || !this.send || this.quiet) return;
    this.asked = this.target;
    this.asking = setTimeout(() => {
      this.asking = null;
      this.ask();
    }, ASK_AGAIN);
    this.send.setTriggerValue("extend", this.message({ to: this.target, have: store.have(words.language) }));
  }

  // A message came. `progress`: it brought something; `answered`: the highest target Python has handled;
  // `busy`: the model is at work, so what was asked for may still come.
  heard(answered, progress, busy) {
    const known = this.player.store.passes.length;
    clearTimeout(this.waiting);
    this.waiting = null;
    if (progress) this.tries = 0;
    if (this.asked) {
      const came = known >= this.asked;
      if (!came && (busy || answered < this.asked)) return;
      clearTimeout(this.asking);
      this.asking = null;
      this.asked = 0;
      if (!came) this.target = known; // Python could not: the reason is the page's to tell
      this.moved(); // what was not reported meanwhile
    }
    this.ask();
  }

  get pending() {
    return Math.max(0, this.target - (this.player.store ? this.player.store.passes.length : 0));
  }

  forget() {
    this.target = this.asked = this.tries = 0;
    for (const timer of ["asking", "waiting", "reportTimer", "outlook", "filling"]) {
      clearTimeout(this[timer]);
      this[timer] = null;
    }
  }
}
