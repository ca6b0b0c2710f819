/* Tabs: arrow keys move between them; each is rendered when first shown. */

import { h, put, unique } from "./dom.js";

/** `pages` are { name, title, draw(place) }. */
export function tabs(label, pages) {
  const panel = h("div.tab-panel", { role: "tabpanel", id: unique("panel"), tabindex: "0" });
  const heads = pages.map((page) => {
    const given = { type: "button", role: "tab", id: unique("tab"), "aria-controls": panel.id };
    return h("button.tab", { ...given, on: { click: () => choose(page) } }, page.title);
  });
  const row = h("div.tabs", { role: "tablist", "aria-label": label, on: { keydown: pressed } }, heads);

  function choose(page) {
    const at = pages.indexOf(page);
    heads.forEach((head, n) => {
      head.setAttribute("aria-selected", String(n === at));
      head.tabIndex = n === at ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", heads[at].id);
    const place = h("div");
    put(panel, place);
    page.draw(place);
  }

  function pressed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = heads.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = (at + step + pages.length) % pages.length;
    heads[next].focus();
    choose(pages[next]);
  }

  choose(pages[0]);
  return h("div.tabbed", row, panel);
}
