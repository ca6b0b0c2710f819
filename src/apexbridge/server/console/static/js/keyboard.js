/* Keyboard shortcuts, and arrow keys in lists. */

/** Arrow keys, Home and End move through the links and buttons of a list. */
export function arrows(list, selector = "a, button") {
  list.addEventListener("keydown", (event) => {
    const items = [...list.querySelectorAll(selector)].filter((item) => !item.disabled);
    const at = items.indexOf(document.activeElement);
    const wanted = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (at < 0 || wanted === undefined || !items[wanted]) return;
    event.preventDefault();
    items[wanted].focus();
  });
  return list;
}

/** Arrow down moves from a search field into the list below it. */
export function downInto(field, list) {
  field.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    const first = list.querySelector("a, button");
    if (!first) return;
    event.preventDefault();
    first.focus();
  });
}

const isTyping = (node) => node?.closest?.("input, textarea, select, [contenteditable]");

/** `/` focuses the search field of the screen; Escape leaves it, or returns to the list. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.key === "/" && !isTyping(event.target)) toSearch(event);
    if (event.key === "Escape") leave(event.target);
  });
}

function toSearch(event) {
  const field = document.querySelector("main [data-search]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select?.();
}

function leave(target) {
  if (isTyping(target)) target.blur();
  else document.querySelector("main [data-back]")?.click();
}
