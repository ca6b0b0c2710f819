/* Formatting of numbers, sizes and times. */

import { t, tag } from "./i18n.js";

export function number(value, digits = 0) {
  const options = { maximumFractionDigits: digits, minimumFractionDigits: digits, signDisplay: "negative" };
  return new Intl.NumberFormat(tag(), options).format(value ?? 0);
}

export function percent(value) {
  return new Intl.NumberFormat(tag(), { style: "percent", maximumFractionDigits: 0 }).format(value ?? 0);
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB"];
  let size = value ?? 0;
  let at = 0;
  while (size >= 1000 && at < units.length - 1) {
    size /= 1000;
    at += 1;
  }
  return `${number(size, at && size < 10 ? 1 : 0)} ${units[at]}`;
}

export function seconds(value) {
  if (value == null) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${number(value * 1e6)} µs`;
  if (value < 1) return `${number(value * 1000, value < 0.01 ? 1 : 0)} ms`;
  if (value < 90) return `${number(value, 1)} s`;
  return `${number(value / 60, 1)} min`;
}

/** Parse a time: Unix seconds, or ISO 8601. */
export function moment(value) {
  return typeof value === "number" ? new Date(value * 1000) : new Date(value);
}

export function when(value) {
  if (!value) return "–";
  const then = moment(value);
  const isToday = then.toDateString() === new Date().toDateString();
  const date = isToday ? {} : { year: "numeric", month: "short", day: "numeric" };
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...date };
  return new Intl.DateTimeFormat(tag(), options).format(then);
}

export function whenExactly(value) {
  const options = { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" };
  return value ? new Intl.DateTimeFormat(tag(), options).format(moment(value)) : "–";
}

export function many(key, count) {
  return t(count === 1 ? `${key}.one` : key, { n: number(count) });
}

/** Score of a search hit; a weak match is a word and no number. */
export function matched(hit) {
  return hit.match === "weak" ? t("match.weak") : percent(hit.score);
}

/** Escape invisible characters, so that a text cannot pass for another. */
export function visible(text) {
  const spelled = (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`;
  return String(text ?? "").replace(/(?![\n\t])[\p{Cc}\p{Cf}\u2028\u2029]/gu, spelled);
}
