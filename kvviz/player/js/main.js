// What Streamlit calls: on mount, and again on the same element whenever data or theme changes. Its cleanup comes
// when the element goes, but also for a call that React gave up on, whose element stays and has a player.

const players = new WeakMap(); // parent element -> Player
const GONE_AFTER = 100; // milliseconds until an element that goes has left the page

export default function (component) {
  const parent = component.parentElement;
  let player = players.get(parent);
  if (!player) {
    player = new Player(parent);
    players.set(parent, player);
  }
  player.receive(component);
  return () => {
    setTimeout(() => {
      if (parent.isConnected || players.get(parent) !== player) return;
      player.destroy();
      players.delete(parent);
    }, GONE_AFTER);
  };
}
