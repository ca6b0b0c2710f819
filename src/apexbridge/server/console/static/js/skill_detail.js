/* Skill detail: text, files, versions and actions. */

import { get, part } from "./api.js";
import { h, put } from "./dom.js";
import { bytes, many, visible, whenExactly } from "./format.js";
import { t, tOf } from "./i18n.js";
import { icon } from "./icons.js";
import { markdown } from "./markdown.js";
import { badge, button, factsTable, hash, outcome } from "./components.js";
import { empty, fetched } from "./placeholders.js";
import { tabs } from "./tabs.js";
import { pinSkill, removeSkill, switchSkill } from "./skill_actions.js";
import { descriptionEditor } from "./skill_edit.js";
import { versionList } from "./skill_versions.js";
import { may } from "./caller.js";

export function skillDetail(place, name, changed) {
  const path = `/v1/skills/${part(name)}`;
  return fetched(place, (signal) => get(path, { signal }), (skill) => whole(skill, changed));
}

function whole(skill, changed) {
  const description = h("p.lead", skill.description);
  const about = h("div.about", description);
  const edit = () => {
    const back = (isSaved) => (isSaved ? changed(skill.name) : put(about, description));
    put(about, descriptionEditor(skill, back));
    about.querySelector("textarea").focus();
  };
  return h(
    "article.skill",
    h("header.detail-head", h("h2", skill.name), h("div.badges", badges(skill))),
    about,
    h("div.actions", actions(skill, edit, changed)),
    facts(skill),
    tabs(skill.name, pages(skill, changed)),
  );
}

function badges(skill) {
  return [
    outcome(tOf("state", skill.state), skill.state === "enabled", "off"),
    badge(tOf("origin", skill.origin)),
    !skill.trusted && badge(t("skills.untrusted"), "warn"),
    skill.pinned && badge([icon("pin", 13), t("skills.pin.on")]),
    skill.has_script && badge(t("skills.script")),
    !skill.model_invocable && badge(t("skills.not_model")),
    skill.findings.scanned && findingsBadge(skill.findings),
  ];
}

function findingsBadge({ worst, count }) {
  if (!worst) return badge(t("skills.clean"), "ok");
  return badge(`${tOf("level", worst)} · ${many("count.findings", count)}`, `level-${worst}`);
}

function actions(skill, edit, changed) {
  const { name, pinned, state, writable } = skill;
  if (!may("skills:write")) return [];
  const isOn = state === "enabled";
  const flip = () => switchSkill(name, !isOn, changed);
  const toggle = button(isOn ? "close" : "check", t(isOn ? "skills.disable" : "skills.enable"), flip);
  if (!writable) return [state !== "shadowed" && toggle, h("p.quiet", t("skills.read_only"))];
  return [
    button("edit", t("skills.edit"), edit),
    toggle,
    button("pin", t(pinned ? "skills.unpin" : "skills.pin"), () => pinSkill(name, !pinned, changed)),
    button("trash", t("skills.remove"), () => removeSkill(name, changed), "danger"),
  ];
}

function facts(skill) {
  return factsTable([
    [t("skills.size"), `${bytes(skill.size)} · ${many("count.files", skill.files)}`],
    [t("skills.version"), skill.version || skill.default_version || "–"],
    [t("skills.source"), skill.source.id],
    [t("skills.changed"), skill.updated_at ? whenExactly(skill.updated_at) : "–"],
    ["SHA-256", hash(skill.sha256)],
  ]);
}

function pages(skill, changed) {
  const path = `/v1/skills/${part(skill.name)}/text`;
  const text = (draw) => (place) => fetched(place, (signal) => get(path, { signal }), draw);
  const read = { title: "SKILL.md", draw: text(body) };
  const source = { title: t("skills.as_written"), draw: text(written) };
  const files = { title: t("skills.files"), draw: text(fileTable) };
  const versions = { title: t("skills.versions"), draw: (place) => versionList(place, skill, changed) };
  return skill.writable ? [read, source, files, versions] : [read, source, files];
}

/** The text without its frontmatter, which is shown above. */
function body(found) {
  const text = found.text.replace(/^\ufeff?---\r?\n[\s\S]*?\r?\n---[ \t]*(\r?\n|$)/, "");
  return text.trim() ? h("div.prose", markdown(text)) : empty(t("skills.no_text"));
}

function written(found) {
  return h("pre.source", { tabindex: "0" }, h("code", visible(found.text)));
}

function fileTable(found) {
  if (!found.files.length) return empty(t("skills.no_files"));
  const row = (file) =>
    h(
      "tr",
      h("td", icon("file", 14), " ", visible(file.path)),
      h("td", file.executable && badge(t("skills.executable"))),
      h("td.end", bytes(file.size)),
    );
  return h("div.table", h("table", h("tbody", found.files.map(row))));
}
