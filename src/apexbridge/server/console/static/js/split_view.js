/* Split view: list and detail; on a small screen one at a time. */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";

/** `home` is the URL of the list alone. */
export function split(name, { head, list, detail, home }) {
  const back = h(
    "a.back", { href: home, data: { back: "" } }, icon("back", 16), t("action.back"),
  );
  const lists = h("section.split-list", { "aria-label": t(`screen.${name}`) }, head, list);
  const details = h("section.split-detail", { "aria-live": "off" }, back, detail);
  const whole = h(`div.split.${name}`, lists, details);
  return {
    whole,
    /** Set whether an item is selected, which a small screen then shows alone. */
    choose(id) {
      whole.classList.toggle("has-detail", Boolean(id));
      for (const link of lists.querySelectorAll("a[data-id]")) {
        if (link.dataset.id === id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
  };
}

export function screenHead(title, ...more) {
  return h("header.screen-head", h("h1", title), more);
}
