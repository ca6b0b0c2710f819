/* The words of the page, in the language that was chosen, or that the browser speaks. */

import { remember, remembered } from "./storage.js";
import { english } from "./words_en.js";
import { chinese } from "./words_zh.js";

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

/** The tag that dates, numbers and requests are written with. */
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

/** The words for a key; {name} is replaced by what is given. */
export function t(key, given = {}) {
  const words = TABLES[language][key] ?? english[key] ?? key;
  return words.replace(/\{(\w+)\}/g, (whole, name) => (name in given ? String(given[name]) : whole));
}

/** The words for one of a known set, such as a state; the name itself where there are none. */
export function tOf(group, name) {
  const key = `${group}.${name}`;
  return TABLES[language][key] ?? english[key] ?? String(name);
}
