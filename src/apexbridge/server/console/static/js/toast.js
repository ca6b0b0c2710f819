/* Toast notifications, optionally with an undo button. */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { pictureButton } from "./components.js";

const SECONDS = { note: 5, bad: 9, action: 12 };
let region = null;

/** ARIA live region of the page, in which toasts appear. */
export function toastShelf() {
  region = h("div.toasts", { role: "status", "aria-live": "polite" });
  return region;
}

export function toast(text, { kind = "note", label = "", action = null } = {}) {
  const close = () => note.remove();
  const act = () => {
    close();
    action();
  };
  const note = h(
    `div.toast.${kind}`,
    h("p", text),
    action && h("button.link", { type: "button", on: { click: act } }, label),
    pictureButton("close", t("action.close"), close),
  );
  region.append(note);
  leaveLater(note, SECONDS[action ? "action" : kind] * 1000);
}

export function toastError(error) {
  toast([error.message, error.hint].filter(Boolean).join(" · "), { kind: "bad" });
}

/** A toast stays while it is hovered or its button has the focus. */
function leaveLater(note, milliseconds) {
  const leave = () => {
    if (note.matches(":hover, :focus-within")) setTimeout(leave, 1000);
    else note.remove();
  };
  setTimeout(leave, milliseconds);
}
