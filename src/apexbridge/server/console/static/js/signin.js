/* Sign-in screen: exchanges the one-time token for a session cookie. */

import { get, post } from "./api.js";
import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { brand } from "./icons.js";
import { problem } from "./placeholders.js";
import { switches } from "./preferences.js";

/** Read the token of `#token=…` and remove it from URL and history. */
export function tokenFromAddress() {
  const token = new URLSearchParams(location.hash.replace(/^#\/?/, "")).get("token") ?? "";
  if (token) history.replaceState(null, "", location.pathname);
  return token;
}

export function signIn(app, { token, done }) {
  const message = h("div", { "aria-live": "assertive" });
  const field = h("input.token", {
    id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, value: token,
  });
  const button = h("button.primary", { type: "submit" }, t("signin.enter"));

  async function enter(event) {
    event?.preventDefault();
    button.disabled = true;
    put(message);
    try {
      await post("/v1/console/session", { body: { token: field.value.trim() } });
      done(await get("/v1/console/session"));
    } catch (error) {
      put(message, problem(error));
      button.disabled = false;
      field.focus();
    }
  }

  const form = h(
    "form.signin-form",
    { on: { submit: enter } },
    h("label", { for: "token" }, t("signin.token")),
    field,
    h("p.hint", t("signin.where")),
    message,
    button,
  );
  const again = () => signIn(app, { token: field.value, done });
  const head = h("header.signin-head", brand(44), h("h1", "ApexBridge"), h("p", t("signin.title")));
  put(app, h("main.signin", head, form, switches(again)));
  document.title = `${t("signin.enter")} · ApexBridge`;
  if (token) enter();
  else field.focus();
}
