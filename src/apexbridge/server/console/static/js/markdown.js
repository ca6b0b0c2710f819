/* Markdown renderer, blocks. HTML in the text stays text (XSS protection). */

import { h } from "./dom.js";
import { inline } from "./markdown_inline.js";

const DEEPEST = 12;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Render a text to a list of elements. */
export function markdown(text) {
  return blocks(String(text).replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [node, next] = block(lines, at, depth);
    made.push(node);
    at = next;
  }
  return made;
}

/** Parse the block at a line: its element, and the next line. */
function block(lines, at, depth) {
  const line = lines[at];
  if (depth > DEEPEST) return [h("p", lines.slice(at).join("\n")), lines.length];
  if (FENCE.test(line)) return fence(lines, at);
  if (HEADING.test(line)) return [heading(line), at + 1];
  if (RULE.test(line)) return [h("hr"), at + 1];
  if (QUOTE.test(line)) return quote(lines, at, depth);
  if (ITEM.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  if (/^( {4}|\t)/.test(line)) return indented(lines, at);
  return paragraph(lines, at);
}

function fence(lines, at) {
  const [, mark, kind] = lines[at].match(FENCE);
  const end = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}\\s*$`);
  let last = at + 1;
  while (last < lines.length && !end.test(lines[last])) last += 1;
  return [code(lines.slice(at + 1, last).join("\n"), kind), last + 1];
}

function code(text, kind = "") {
  return h("pre", { tabindex: "0", data: kind ? { kind } : {} }, h("code", text));
}

function indented(lines, at) {
  let last = at;
  while (last < lines.length && (/^( {4}|\t)/.test(lines[last]) || !lines[last].trim())) last += 1;
  const text = lines.slice(at, last).map((line) => line.replace(/^( {4}|\t)/, ""));
  return [code(text.join("\n").trimEnd()), last];
}

function heading(line) {
  const [, marks, text = ""] = line.match(HEADING);
  return h(`h${Math.min(6, marks.length + 2)}`, inline(text)); // the page has its own h1 and h2
}

function quote(lines, at, depth) {
  let last = at;
  while (last < lines.length && QUOTE.test(lines[last])) last += 1;
  const inner = lines.slice(at, last).map((line) => line.replace(QUOTE, ""));
  return [h("blockquote", blocks(inner, depth + 1)), last];
}

function list(lines, at, depth) {
  const isOrdered = /\d/.test(lines[at].match(ITEM)[2]);
  const first = isOrdered ? parseInt(lines[at].match(ITEM)[2], 10) : 1;
  const items = [];
  let next = at;
  while (next < lines.length) {
    const found = lines[next].match(ITEM);
    if (!found || /\d/.test(found[2]) !== isOrdered || RULE.test(lines[next])) break;
    const [inner, end] = itemLines(lines, next, found);
    items.push(h("li", itemNodes(inner, depth)));
    next = end;
  }
  const start = isOrdered && first !== 1 ? { start: first } : {};
  return [h(isOrdered ? "ol" : "ul", start, items), next];
}

/** Dedented lines of one list item, and the start of the next. */
function itemLines(lines, at, found) {
  const width = found[1].length + found[2].length + 1;
  const inner = [found[4]];
  let next = at + 1;
  while (next < lines.length) {
    const line = lines[next];
    const indent = line.length - line.trimStart().length;
    const isInside = line.trim() ? indent >= Math.min(width, 2) : isInsideAfterBlank(lines, next);
    const isLazy = line.trim() && !ITEM.test(line) && !startsBlock(line) && lines[next - 1].trim();
    if (!isInside && !isLazy) break;
    inner.push(line.slice(Math.min(indent, width)));
    next += 1;
  }
  return [inner, next];
}

function isInsideAfterBlank(lines, at) {
  const next = lines.slice(at, at + 3).find((line) => line.trim());
  return next !== undefined && (/^\s{2,}/.test(next) || ITEM.test(next));
}

/** Render a short item inline, and one of several blocks as blocks. */
function itemNodes(inner, depth) {
  const text = inner.join("\n").trim();
  const box = text.match(/^\[([ xX])\]\s+/);
  if (box) inner = text.slice(box[0].length).split("\n");
  const made = blocks(inner, depth + 1);
  const first = made[0];
  const flat = first?.tagName === "P" ? [...first.childNodes, ...made.slice(1)] : made;
  return box ? [h("span.tick", box[1] === " " ? "☐ " : "☑ "), flat] : flat;
}

function isTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && DIVIDER.test(lines[at + 1]) && lines[at + 1].includes("-");
}

function table(lines, at) {
  const sides = cells(lines[at + 1]).map((cell) =>
    /^:-+:$/.test(cell) ? "middle" : /-:$/.test(cell) ? "end" : "",
  );
  const row = (tag, line) =>
    h("tr", cells(line).slice(0, sides.length).map((cell, n) => h(tag, { class: sides[n] }, inline(cell))));
  let last = at + 2;
  while (last < lines.length && lines[last].includes("|") && lines[last].trim()) last += 1;
  const body = lines.slice(at + 2, last).map((line) => row("td", line));
  return [h("div.table", { tabindex: "0" }, h("table", h("thead", row("th", lines[at])), h("tbody", body))), last];
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

const startsBlock = (line) => [FENCE, HEADING, RULE, QUOTE].some((kind) => kind.test(line));

function paragraph(lines, at) {
  let last = at + 1;
  const goesOn = (line) => line.trim() && !startsBlock(line) && !ITEM.test(line);
  while (last < lines.length && goesOn(lines[last]) && !isTable(lines, last)) last += 1;
  return [h("p", inline(lines.slice(at, last).map((line) => line.trimStart()).join("\n"))), last];
}
