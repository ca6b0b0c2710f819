/* Message composer: Ctrl+Enter sends, a button stops. */

import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";

const TALLEST = 220;

export function composer({ say, stop }) {
  const field = h("textarea", {
    rows: 1, "aria-label": t("chat.write"), placeholder: t("chat.write"), data: { search: "" },
    on: { input: fit, keydown: pressed },
  });
  const button = h("button.primary.round", { type: "submit" });
  const node = h("form.composer", { on: { submit: submitted } }, field, button, h("p.hint", t("chat.keys")));
  let isRunning = null;

  function fit() {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight + 2, TALLEST)}px`;
  }

  function pressed(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
      event.preventDefault();
      if (!isRunning) send();
    }
  }

  function submitted(event) {
    event.preventDefault();
    if (isRunning) stop();
    else send();
  }

  function send() {
    const text = field.value.trim();
    if (!text) return;
    field.value = "";
    fit();
    say(text);
  }

  function running(now) {
    if (now === isRunning) return;
    isRunning = now;
    const words = t(now ? "chat.stop" : "chat.send");
    button.setAttribute("aria-label", words);
    button.title = words;
    put(button, icon(now ? "stop" : "send"));
  }

  function write(text) {
    field.value = text;
    fit();
    field.focus();
  }

  function allow(isAllowed) {
    field.disabled = button.disabled = !isAllowed;
    field.placeholder = t(isAllowed ? "chat.write" : "chat.foreign");
  }

  running(false);
  return { node, running, write, allow, focus: () => field.focus({ preventScroll: true }) };
}
