/* Version list of a skill, with rollback. */

import { get, part } from "./api.js";
import { h } from "./dom.js";
import { bytes, whenExactly } from "./format.js";
import { t } from "./i18n.js";
import { badge, table } from "./components.js";
import { empty, fetched } from "./placeholders.js";
import { rollBack } from "./skill_actions.js";
import { may } from "./caller.js";

export function versionList(place, skill, changed) {
  const ask = (signal) => get(`/v1/skills/${part(skill.name)}/versions`, { query: { limit: 50 }, signal });
  return fetched(place, ask, (found) => drawn(found.data, skill, changed));
}

function drawn(versions, skill, changed) {
  if (!versions.length) return empty(t("versions.empty"));
  const heads = ["versions.version", "versions.when", "versions.size", "versions.action"];
  return table(heads, versions.map((version) => row(version, skill, changed)), "versions");
}

function row(version, skill, changed) {
  const back = () => rollBack(skill.name, version.version, changed);
  const disabled = skill.pinned || !may("skills:write");
  const action = version.current
    ? badge(t("versions.current"), "ok")
    : h("button", { type: "button", disabled, on: { click: back } }, t("versions.back"));
  const name = [h("code.hash", version.version), version.declared && ` ${version.declared} `];
  return h(
    "tr",
    h("td", name, version.pinned && badge(t("skills.pin.on")), h("div.quiet.clamp", version.description)),
    h("td", version.created_at ? whenExactly(version.created_at) : "–"),
    h("td", bytes(version.size)),
    h("td", action),
  );
}
