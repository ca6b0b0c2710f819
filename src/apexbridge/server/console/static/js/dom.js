/* DOM builder: the only place that creates elements, from names and text, never from markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: h("button.primary", { type: "button", on: { click } }, "Save").
 * Children may be nodes, texts, numbers, lists of them, or nothing.
 */
export function h(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  return fill(node, rest);
}

/** Create an SVG element. */
export function s(tag, ...rest) {
  return fill(document.createElementNS(SVG, tag), rest);
}

function fill(node, rest) {
  const isPlain = (value) => value?.constructor === Object;
  const given = isPlain(rest[0]) ? rest.shift() : {};
  for (const [name, value] of Object.entries(given)) set(node, name, value);
  node.append(...nodes(rest));
  return node;
}

function set(node, name, value) {
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
  } else if (name === "class") {
    node.classList.add(...String(value).split(" ").filter(Boolean));
  } else if (name === "data") {
    Object.assign(node.dataset, value);
  } else if (name === "value") {
    node.value = value;
  } else if (/^(on|srcdoc|style$)/i.test(name)) {
    throw new Error(`${name} is not set from here`);
  } else if (value === true) {
    node.setAttribute(name, "");
  } else if (value !== false && value !== null && value !== undefined) {
    node.setAttribute(name, String(value));
  }
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** Replace the children of an element. */
export function put(place, ...children) {
  place.replaceChildren(...nodes(children));
  return place;
}

/** Debounce a function. */
export function debounce(milliseconds, action) {
  let waiting = 0;
  const later = (...given) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => action(...given), milliseconds);
  };
  later.cancel = () => clearTimeout(waiting);
  return later;
}

/** Set a length; the Content-Security-Policy forbids style attributes, so h() has none. */
export function wide(node, share, property = "width") {
  node.style[property] = `${(Math.max(0, Math.min(1, share)) * 100).toFixed(2)}%`;
  return node;
}

let last = 0;
/** Unique element id, for labels. */
export function unique(word) {
  last += 1;
  return `${word}-${last}`;
}
