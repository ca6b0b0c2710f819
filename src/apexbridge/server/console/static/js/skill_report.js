/* Inspection report of a skill: permissions and scanner findings. */

import { h } from "./dom.js";
import { bytes, many, visible } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { badge, fold } from "./components.js";

export function report(found) {
  const { worst, findings, partial } = found.report;
  const count = many("count.findings", findings.length);
  const verdict = worst
    ? badge(`${tOf("level", worst)} · ${count}`, `level-${worst}`)
    : badge(t("skills.clean"), "ok");
  const files = many("count.files", found.files.length);
  const facts = [bytes(found.size), files, found.version, found.sha256.slice(0, 16)];
  return h(
    "article.report",
    h("header.detail-head", h("h3", found.name), verdict),
    h("p.lead", found.description),
    h("p.quiet", facts.filter(Boolean).join(" · ")),
    partial && h("p.event.warn", icon("warning", 15), t("report.partial")),
    section(t("report.findings"), findings, finding),
    section(t("report.problems"), found.problems, trouble),
    section(t("report.tools"), found.tools, code),
    section(t("report.hooks"), found.hooks, code),
    section(t("report.commands"), found.commands, code),
    section(t("report.scripts"), found.scripts, script),
    fold(t("skills.files"), h("ul.plain", found.files.map(file))),
  );
}

function section(title, items, draw) {
  if (!items.length) return null;
  const list = h("ul.plain", items.map((item) => h("li", draw(item))));
  return h("section", h("h4", title, badge(items.length)), list);
}

const code = (text) => h("code", visible(text));
const script = ({ path, runner }) => [code(path), " ", h("span.quiet", runner)];
const file = ({ path, size }) => h("li", visible(path), h("span.quiet", ` ${bytes(size)}`));

function finding({ level, title, advice, path, line, excerpt }) {
  const where = h("span.quiet", ` ${path}${line ? `:${line}` : ""}`);
  return [
    h("p", badge(tOf("level", level), `level-${level}`), " ", h("b", title), where),
    excerpt && h("pre", { tabindex: "0" }, h("code", visible(excerpt))),
    advice && h("p.quiet", advice),
  ];
}

function trouble({ severity, message, hint, where }) {
  const kind = severity === "error" ? "bad" : "warn";
  const more = h("span.quiet", [where && ` (${where})`, hint && ` ${hint}`]);
  return [badge(tOf("severity", severity), kind), " ", message, more];
}
