/* Language and theme selectors. */

import { h } from "./dom.js";
import { currentLanguage, languages, speak, t } from "./i18n.js";
import { icon } from "./icons.js";
import { currentTheme, themes, wear } from "./theme.js";

/** `changed` is called when the page must be rendered in another language. */
export function switches(changed) {
  return h("div.switches", languageSwitch(changed), themeSwitch());
}

function languageSwitch(changed) {
  const choose = (event) => {
    speak(event.target.value);
    changed();
  };
  return choice("language", t("switch.language"), languages, currentLanguage(), choose);
}

function themeSwitch() {
  const options = themes.map((theme) => [theme, t(`theme.${theme}`)]);
  return choice("theme", t("switch.theme"), options, currentTheme(), (event) => wear(event.target.value));
}

function choice(name, label, options, chosen, change) {
  const listed = options.map(([value, words]) => h("option", { value, selected: value === chosen }, words));
  return h(
    "label.switch",
    { title: label },
    icon(name, 16),
    h("span.unseen", label),
    h("select", { data: { switch: name }, on: { change } }, listed),
  );
}
