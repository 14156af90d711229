// What all parts of the page share: the data, the selected cases, and short ways to make elements.
const data = JSON.parse(document.getElementById("data").textContent);
const selected = new Set(data.selected);  // numbers of cases
const byId = id => document.getElementById(id);
const labelOf = number => data.cases[number].label;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}
const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// Listeners are called when the selection, the filter or the order of the table changes.
const listeners = [];
function changed() { for (const listener of listeners) listener(); }

// A value with its interval: "1.54 [1.40, 1.69]".
function spanText(triple, digits = 2) {
  if (!triple) return "";
  const [value, low, high] = triple.map(one => one === null || one === undefined ? null : one.toFixed(digits));
  return low === null || low === undefined ? value : `${value} [${low}, ${high}]`;
}
const percent = share => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)} %`;

// Closed parts would be missing on paper, so printing opens them, except in a large run, and except very long parts.
const MOST_PRINTED = 30;
let opened = [];
addEventListener("beforeprint", () => {
  opened = data.cases?.length > MOST_PRINTED ? [] : [...document.querySelectorAll("details:not([open]):not(.long)")];
  for (const part of opened) part.open = true;
});
addEventListener("afterprint", () => { for (const part of opened) part.open = false; });
