// Builds elements. Text only ever becomes text: nothing on this page turns a string into markup.

// el("p", {class: "muted", onclick: f}, "text", child, ...)
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  assign(element, attributes);
  element.append(...children.filter((c) => c !== null && c !== undefined));
  return element;
}

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  assign(element, attributes);
  element.append(...children);
  return element;
}

function assign(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
}

export const byId = (id) => document.getElementById(id);
