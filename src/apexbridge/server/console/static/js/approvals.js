/* Approvals screen: all pending approvals, each with its countdown. */

import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { address } from "./router.js";
import { screenHead } from "./split_view.js";
import { empty, fetched } from "./placeholders.js";
import { question } from "./approval_card.js";
import { pendingApprovals, refreshApprovals, watchApprovals } from "./pending_approvals.js";

export function open(place) {
  const list = h("div.questions", { "aria-live": "polite" });
  const shown = new Map();
  put(place, h("div.page", screenHead(t("screen.approvals")), h("p.quiet", t("approvals.about")), list));

  /** Cards already shown keep their place, to prevent clicks on the wrong button. */
  function draw() {
    const pending = pendingApprovals();
    for (const each of pending) if (!shown.has(each.id)) shown.set(each.id, view(each));
    for (const [id, view] of shown) settle(id, view, pending);
    if (!shown.size) return empty(t("approvals.empty"), t("approvals.empty.text"));
    return [...shown.values()].map((view) => view.node);
  }

  function settle(id, view, pending) {
    if (pending.some((each) => each.id === id)) return;
    view.piece.answer ||= "withdrawn";
    view.update();
  }

  function update() {
    const nodes = [draw()].flat();
    const isSame = nodes.length === list.childNodes.length && nodes.every((node, n) => node === list.childNodes[n]);
    if (!isSame) put(list, nodes);
  }

  let isLoaded = false;
  fetched(list, refreshApprovals, () => {
    isLoaded = true;
    return draw();
  });
  const unwatch = watchApprovals(() => isLoaded && update());
  return { close: unwatch };
}

function view(pending) {
  const piece = { ...pending, until: pending.deadline * 1000, answer: "" };
  const { node, update } = question(piece);
  const session = h("a", { href: address("chat", pending.session) }, h("code.hash", pending.session));
  const from = h("p.quiet", t("approvals.from"), " ", session);
  return { piece, update, node: h("div.waiting", node, from) };
}
