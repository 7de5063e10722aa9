// Passes that were made ahead of the press that asks for them: it shows them at once, and Python hears of it later.

class Ready {
  constructor(player) {
    this.player = player;
    this.blobs = [];
  }

  // What the latest message brought stands for all before it.
  take(blobs) {
    this.blobs = blobs;
    this.drop();
  }

  drop() {
    while (this.blobs.length && this.blobs[0].header.to <= this.player.store.passes.length) this.blobs.shift();
  }

  // The next pass on screen. False if there is none, or if an earlier press still waits for its own.
  show() {
    const { player } = this;
    this.drop();
    if (!this.blobs.length || player.talk.pending) return false;
    player.store.merge(this.blobs.shift());
    player.go({ step: player.store.passes.length - 1, substep: null, grown: null });
    player.talk.shown(this.blobs.length);
    return true;
  }
}
