/* Localization: the messages of the chosen language, or of the browser's. */

import { remember, remembered } from "./storage.js";
import { english } from "./locale_en.js";
import { chinese } from "./locale_zh.js";

const TABLES = { en: english, zh: chinese };
const TAGS = { en: "en", zh: "zh-CN" };
let language = chosen();

function chosen() {
  const kept = remembered("language");
  if (kept in TABLES) return kept;
  const spoken = navigator.languages?.length ? navigator.languages : [navigator.language ?? "en"];
  return spoken[0].toLowerCase().startsWith("zh") ? "zh" : "en";
}

export const languages = [
  ["en", "English"],
  ["zh", "中文"],
];

export function currentLanguage() {
  return language;
}

/** BCP 47 tag for dates, numbers and Accept-Language. */
export function tag() {
  return TAGS[language];
}

export function markPage() {
  document.documentElement.lang = tag();
}

export function speak(wanted) {
  language = wanted;
  remember("language", wanted);
  markPage();
}

/** Message of a key, with {name} placeholders filled in. */
export function t(key, given = {}) {
  const words = TABLES[language][key] ?? english[key] ?? key;
  return words.replace(/\{(\w+)\}/g, (whole, name) => (name in given ? String(given[name]) : whole));
}

/** Message of an enumeration value, such as a state; the value itself if there is none. */
export function tOf(group, name) {
  const key = `${group}.${name}`;
  return TABLES[language][key] ?? english[key] ?? String(name);
}
