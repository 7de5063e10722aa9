// What Streamlit calls: on mount, and again on the same element whenever data or theme changes.

const players = new WeakMap(); // parent element -> Player
const GONE_AFTER = 100; // milliseconds: a call that React gave up on is followed by another at once

export default function (component) {
  const parent = component.parentElement;
  let player = players.get(parent);
  if (!player) {
    player = new Player(parent);
    players.set(parent, player);
  }
  const call = (player.calls = (player.calls || 0) + 1);
  player.receive(component);
  return () => {
    setTimeout(() => {
      if (player.calls !== call || players.get(parent) !== player) return;
      player.destroy();
      players.delete(parent);
    }, GONE_AFTER);
  };
}
