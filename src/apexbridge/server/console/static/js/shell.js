/* App shell: navigation and preferences around every screen. */

import { remove } from "./api.js";
import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { brand, icon } from "./icons.js";
import { pictureButton } from "./components.js";
import { address, show } from "./router.js";
import { toastError, toastShelf } from "./toast.js";
import { switches } from "./preferences.js";
import { watchApprovals } from "./pending_approvals.js";
import { may } from "./caller.js";

/* Each with what one of which must be allowed to see it. */
const SCREENS = {
  chat: ["chat"],
  skills: ["skills:read"],
  playground: ["skills:read"],
  runs: ["admin"],
  traces: ["chat", "admin"],
  approvals: ["admin"],
  doctor: ["admin"],
};

export function shell(app, { who, out }) {
  const badge = h("span.badge.count", { hidden: true });
  const place = h("main", { id: "main", tabindex: "-1" });
  const frame = h("div.frame");
  let now = "chat";

  async function leave() {
    await remove("/v1/console/session").catch(toastError);
    out();
  }

  function draw() {
    const seen = Object.keys(SCREENS).filter((name) => SCREENS[name].some(may));
    const links = seen.map((name) => entry(name, name === "approvals" && badge));
    const skip = h("button.skip", { type: "button", on: { click: () => place.focus() } }, t("nav.skip"));
    const nav = h("nav.nav", { "aria-label": t("nav.label") }, links);
    const exit = pictureButton("leave", t("signin.leave"), leave, "leave");
    const foot = h("div.side-foot", switches(again), h("p.version", `v${who.version}`), exit);
    const head = h("a.brand", { href: address("chat") }, brand(), h("span", "ApexBridge"));
    put(frame, skip, h("header.side", head, nav, foot), place);
    mark();
  }

  function again() {
    draw();
    show({ anew: true });
    frame.querySelector("[data-switch=language]").focus();
  }

  function mark() {
    for (const link of frame.querySelectorAll(".nav a")) {
      if (link.dataset.screen === now) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${t(`screen.${now}`)} · ApexBridge`;
  }

  draw();
  put(app, frame, toastShelf());
  const count = (waiting) => {
    badge.hidden = !waiting;
    put(badge, waiting, h("span.unseen", ` ${t("approvals.waiting")}`));
  };
  const unwatch = may("admin") ? watchApprovals(count) : () => {};
  const opened = (route) => {
    now = route.name;
    mark();
  };
  return { place, opened, close: unwatch };
}

function entry(name, badge) {
  return h(
    "a",
    { href: address(name), data: { screen: name } },
    icon(name),
    h("span.nav-word", t(`screen.${name}`)),
    badge,
  );
}
