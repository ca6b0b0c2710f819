/* Modal dialog; Escape closes it, and the focus returns to where it was. */

import { h } from "./dom.js";
import { t } from "./i18n.js";
import { pictureButton } from "./components.js";

/** Open a dialog with the given content and close callback. */
export function dialog(title, content, { closed = () => {}, wide = false } = {}) {
  const before = document.activeElement;
  const box = h(
    "dialog.dialog",
    { "aria-label": title, class: wide ? "wide" : "" },
    h(
      "header.dialog-head",
      h("h2", title),
      pictureButton("close", t("action.close"), () => box.close()),
    ),
    h("div.dialog-body", content),
  );
  box.addEventListener("close", () => {
    box.remove();
    if (before?.isConnected) before.focus();
    closed();
  });
  document.body.append(box);
  box.showModal();
  return box;
}
