// Streamlit hears of a text when its field is left. With an empty prompt Run is off, so a learner who types and
// clicks Run would click in vain: while Run is off, the first pause in typing hands the text over as Ctrl+Enter does.
const PAUSE = 300; // milliseconds

let timer = null;

function typed(event) {
  const field = event.target;
  if (!(field instanceof HTMLTextAreaElement) || !field.closest(".st-key-prompt")) return;
  clearTimeout(timer);
  timer = setTimeout(() => {
    const run = document.querySelector(".st-key-run_button button");
    if (!run || !run.disabled || field.value === "" || !document.contains(field)) return;
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true, bubbles: true, cancelable: true }));
  }, PAUSE);
}

document.addEventListener("input", typed); // for as long as the page lives: it looks for the field by itself

export default function () {}
