/* Session list of the chat screen. */

import { get, part, remove } from "./api.js";
import { h } from "./dom.js";
import { when } from "./format.js";
import { t } from "./i18n.js";
import { arrows } from "./keyboard.js";
import { pictureButton } from "./components.js";
import { address } from "./router.js";
import { empty, fetched } from "./placeholders.js";
import { toastError } from "./toast.js";

export function sessionList({ removed }) {
  const node = h("div.sessions");
  let marked = "";

  function refresh(id = marked) {
    marked = id;
    const ask = (signal) => get("/v1/sessions", { signal });
    return fetched(node, ask, draw, { quiet: node.childNodes.length > 0 });
  }

  function draw(found) {
    if (!found.data.length) return empty(t("chat.sessions.empty"));
    return arrows(h("ul.list", found.data.map(line)), "a");
  }

  function line(session) {
    const title = session.title || t("chat.untitled");
    const forget = pictureButton("trash", t("chat.delete", { title }), () => drop(session), "on-hover");
    const current = session.id === marked ? { "aria-current": "true" } : {};
    const link = h(
      "a.list-item",
      { href: address("chat", session.id), data: { id: session.id }, ...current },
      h("span.list-title", title),
      h("span.list-note", when(session.changed)),
    );
    return h("li.with-action", link, forget);
  }

  async function drop(session) {
    try {
      await remove(`/v1/sessions/${part(session.id)}`);
      removed(session.id);
      refresh();
    } catch (error) {
      toastError(error);
    }
  }

  function mark(id) {
    marked = id;
    for (const link of node.querySelectorAll("a[data-id]")) {
      if (link.dataset.id === id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  return { node, refresh, mark };
}
