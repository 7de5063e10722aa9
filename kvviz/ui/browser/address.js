// Keeps step, layer and head, and settings of a page's own, in the address bar without a history entry: Back leaves
// the page, not the step, and a reload comes back to where the learner was. What is null is taken out.
export default function ({ data }) {
  const here = new URL(window.location.href);
  for (const [name, value] of Object.entries(data.place)) {
    if (value === null) here.searchParams.delete(name);
    else here.searchParams.set(name, String(value));
  }
  if (here.href !== window.location.href) window.history.replaceState(window.history.state, "", here.href);
}
