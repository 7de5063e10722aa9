// Texts of the page's language. A template may hold {values} and [marked words](k), where the mark is
// q, k, v, w (a tensor's colour), b (bold) or t (a token). Values enter as text nodes, never as markup.

const MARKED = /\[([^\]]+)\]\(([a-z])\)|\{(\w+)\}/g;

class Words {
  constructor() {
    this.language = "";
    this.sections = {};
  }

  take(language, sections) {
    this.language = language;
    this.sections = sections;
  }

  raw(name) {
    const text = this.sections[name];
    return text === undefined ? name : text;
  }

  // The section as plain text.
  plain(name, values = {}) {
    const fill = (text) => text.replace(/\{(\w+)\}/g, (_, key) => String(values[key]));
    let out = "";
    let last = 0;
    const text = this.raw(name);
    for (const m of text.matchAll(MARKED)) {
      out += text.slice(last, m.index);
      out += m[3] ? String(values[m[3]]) : fill(m[1]);
      last = m.index + m[0].length;
    }
    return out + text.slice(last);
  }

  // The section as nodes in `element`.
  fill(element, name, values = {}) {
    const text = this.raw(name);
    const nodes = [];
    let last = 0;
    const add = (s) => s && nodes.push(document.createTextNode(s));
    for (const m of text.matchAll(MARKED)) {
      add(text.slice(last, m.index));
      if (m[3]) add(String(values[m[3]]));
      else {
        const mark = document.createElement(m[2] === "b" ? "b" : "span");
        mark.className = `kvp-${m[2]}`;
        mark.textContent = m[1].replace(/\{(\w+)\}/g, (_, key) => String(values[key]));
        nodes.push(mark);
      }
      last = m.index + m[0].length;
    }
    add(text.slice(last));
    element.replaceChildren(...nodes);
  }
}

const words = new Words();

// A token inside a sentence: its label, cut so that the sentence keeps to its line.
const short = (label, most = 16) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);
