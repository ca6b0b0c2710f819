/* Doctor screen: diagnostics, settings and the audit log. */

import { get } from "./api.js";
import { h, put } from "./dom.js";
import { number, visible, whenExactly } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { badge, searchField, table } from "./components.js";
import { screenHead } from "./split_view.js";
import { empty, fetched } from "./placeholders.js";
import { tabs } from "./tabs.js";

export function open(place) {
  const page = (title, path, draw) => ({
    title: t(title),
    draw: (spot) => fetched(spot, (signal) => get(path, { signal }), draw),
  });
  const pages = [
    page("doctor.checks", "/v1/doctor", checks),
    page("doctor.settings", "/v1/settings", settings),
    page("doctor.audit", "/v1/audit?limit=100", audit),
  ];
  put(place, h("div.page.doctor", screenHead(t("screen.doctor")), tabs(t("screen.doctor"), pages)));
  return {};
}

function verdict(kind, words, ...more) {
  return h(`p.verdict.${kind}`, icon(kind === "ok" ? "check" : "warning"), h("b", words), more);
}

function checks(found) {
  const count = (state) => found.checks.filter((check) => check.state === state).length;
  const [bad, odd] = [count("fail"), count("warn")];
  const version = h("span.quiet", `ApexBridge ${found.version}`);
  const list = h("ul.checks", found.checks.map(check));
  if (bad) return [verdict("bad", t("doctor.bad", { n: bad }), version), list];
  if (odd) return [verdict("warn", t("doctor.odd", { n: odd }), version), list];
  return [verdict("ok", t("doctor.ok"), version), list];
}

function check({ name, state, detail }) {
  const kind = { ok: "ok", warn: "warn", fail: "bad" }[state];
  const mark = icon(state === "ok" ? "check" : "warning", 15);
  return h(
    "li",
    h(`span.check-mark.${kind}`, mark, h("span.unseen", tOf("check", state))),
    h("b", name),
    h("span", detail),
  );
}

function settings(found) {
  const all = Object.entries(found.data);
  const body = h("tbody");
  const draw = (text) => put(body, all.filter(([name]) => name.includes(text)).map(setting));
  const field = searchField(t("doctor.filter"), () => draw(field.value.trim().toLowerCase()));
  draw("");
  return [h("div.filters", field), table(["doctor.setting", "doctor.value", "doctor.origin"], body)];
}

function setting([name, { value, origin }]) {
  const kind = origin === "default" ? "" : "chosen";
  return h("tr", { class: kind }, h("td", h("code", name)), h("td.mono", shown(value)), h("td", badge(origin)));
}

function shown(value) {
  if (value === null || value === "" || (Array.isArray(value) && !value.length)) return "–";
  return visible(typeof value === "object" ? JSON.stringify(value) : value);
}

function audit(found) {
  const words = found.intact
    ? t("audit.intact", { n: number(found.records) })
    : t("audit.broken", { n: number(found.broken_at) });
  const rows = [...found.data].reverse().map(change);
  const list = rows.length ? table(["audit.at", "audit.action", "audit.facts"], rows) : empty(t("audit.empty"));
  return [verdict(found.intact ? "ok" : "bad", words), list];
}

function change({ at, action, facts }) {
  const fact = ([name, value]) => h("span.mini", `${name} `, h("b", visible(value)));
  return h(
    "tr",
    h("td", whenExactly(at)),
    h("td", h("b", action)),
    h("td.mono", Object.entries(facts).map(fact)),
  );
}
