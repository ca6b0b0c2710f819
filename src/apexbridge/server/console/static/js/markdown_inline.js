/* Markdown renderer, inline elements. */

import { h } from "./dom.js";

const DEEPEST = 8;
const LONGEST = 20_000; // longer lines are not parsed: regular expressions could backtrack (ReDoS)

/* An address in the running text; the marks that end a sentence, also a Chinese one, are not of it. */
const BARE =
  /(?<![\w/])https?:\/\/[^\s<>()\u3000-\u303f\uff00-\uffef]{1,2000}[^\s<>().,;:!?'"*_\u3000-\u303f\uff00-\uffef]/;

/* In the order in which they are tried: the first that begins earliest wins. */
const KINDS = [
  [/\\([\\`*_{}[\]()#+\-.!|<>~"'$&,/:;=?@^%])/, (found) => found[1]],
  [/(`+)([^`]|[^`][\s\S]{0,5000}?[^`])\1(?!`)/, (found) => h("code", found[2].replace(/\n/g, " "))],
  [/!\[([^\]\n]{0,500})\]\(([^()\s]{1,2000})(?:\s+"[^"\n]*")?\)/, picture],
  [/\[([^\]\n]{1,500})\]\(<?([^()\s<>]{1,2000})>?(?:\s+"[^"\n]*")?\)/, link],
  [/<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/, (found) => anchor(found[1], [found[1]], false)],
  [BARE, (found) => anchor(found[0], [found[0]], false)],
  [/\*\*(?=\S)([\s\S]{1,2000}?\S)\*\*/, (found, depth) => h("strong", pieces(found[1], depth))],
  [/(?<!\w)__(?=\S)([\s\S]{1,2000}?\S)__(?!\w)/, (found, depth) => h("strong", pieces(found[1], depth))],
  [/~~(?=\S)([\s\S]{1,2000}?\S)~~/, (found, depth) => h("s", pieces(found[1], depth))],
  [/\*(?=[^\s*])([^*]{0,2000}[^\s*])\*/, (found, depth) => h("em", pieces(found[1], depth))],
  [/(?<!\w)_(?=[^\s_])([^_]{0,2000}[^\s_])_(?!\w)/, (found, depth) => h("em", pieces(found[1], depth))],
  [/ {2,}\n|\\\n/, () => h("br")],
];

export function inline(text) {
  return text.length > LONGEST ? [text] : pieces(text, 0);
}

function pieces(text, depth) {
  const made = [];
  const next = KINDS.map(() => undefined);
  let at = 0;
  while (at < text.length && depth < DEEPEST) {
    const best = earliest(text, at, next);
    if (best < 0) break;
    const found = next[best];
    if (found.index > at) made.push(text.slice(at, found.index));
    made.push(KINDS[best][1](found, depth + 1));
    at = found.index + found[0].length;
  }
  if (at < text.length) made.push(text.slice(at));
  return made;
}

/** Next match of any kind; earlier matches that still lie ahead are reused. */
function earliest(text, at, next) {
  let best = -1;
  KINDS.forEach(([pattern], kind) => {
    if (next[kind] === undefined || (next[kind] && next[kind].index < at)) {
      const sticky = new RegExp(pattern, "g");
      sticky.lastIndex = at;
      next[kind] = sticky.exec(text);
    }
    if (next[kind] && (best < 0 || next[kind].index < next[best].index)) best = kind;
  });
  return best;
}

function link(found, depth) {
  return anchor(found[2], pieces(found[1], depth), true);
}

/** Images are not fetched (tracking): alt text and URL are shown. */
function picture(found) {
  return anchor(found[2], [found[1] || found[2]], true);
}

/** Only http(s) and mailto become links, with a visible target and no referrer. */
function anchor(address, words, shows) {
  const target = safe(address);
  if (!target) return h("span.dead-link", words, h("span.target", ` (${address})`));
  const attributes = { href: target.href, rel: "noopener noreferrer nofollow", target: "_blank" };
  const where = target.protocol === "mailto:" ? target.pathname : target.host;
  return [h("a", { ...attributes, title: target.href }, words), shows && h("span.target", ` (${where})`)];
}

function safe(address) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    const target = new URL(address);
    return ["https:", "http:", "mailto:"].includes(target.protocol) ? target : null;
  } catch {
    return null;
  }
}
