/* Install dialog: drop or choose a zip archive, inspect it, then install. */

import { part, post } from "./api.js";
import { h, put } from "./dom.js";
import { dialog } from "./dialog.js";
import { t } from "./i18n.js";
import { icon } from "./icons.js";
import { loading, problem } from "./placeholders.js";
import { toast } from "./toast.js";
import { report } from "./skill_report.js";

const GRAVE = ["warn", "block"];

/** Choose a file; `changed` is called with the name of the installed skill. */
export function chooseFile(changed) {
  const field = h("input", { type: "file", accept: ".zip,.skill,application/zip", "aria-label": t("install.file") });
  const place = h("div.install");
  const zone = h("label.drop-zone", icon("upload", 28), h("b", t("install.drop")), h("span", t("install.or")), field);
  const box = dialog(t("install.title"), put(place, zone), { wide: true });
  field.addEventListener("change", () => field.files[0] && look(box, place, field.files[0], changed));
  catchDrops(zone, (file) => look(box, place, file, changed));
}

/** Make a screen a drop target for zip archives. */
export function takesDrops(screen, changed) {
  catchDrops(screen, (file) => {
    const place = h("div.install");
    look(dialog(t("install.title"), place, { wide: true }), place, file, changed);
  });
}

function catchDrops(zone, take) {
  const mark = (isOver) => zone.classList.toggle("dropping", isOver);
  const hasFile = (event) => event.dataTransfer?.types.includes("Files");
  zone.addEventListener("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    mark(true);
  });
  zone.addEventListener("dragleave", (event) => zone.contains(event.relatedTarget) || mark(false));
  zone.addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    event.stopPropagation();
    mark(false);
    take(event.dataTransfer.files[0]);
  });
}

function formOf(file) {
  const form = new FormData();
  form.append("files", file, file.name);
  return form;
}

async function look(box, place, file, changed) {
  put(place, h("p.quiet", t("install.looking", { file: file.name })), loading(4));
  try {
    const found = await post("/v1/skills/inspect", { form: formOf(file) });
    put(place, report(found), decision(box, place, file, found, changed));
    place.querySelector("[data-focus]")?.focus();
  } catch (error) {
    put(place, problem(error), h("div.actions", closing(box, t("action.close"))));
  }
}

const closing = (box, words) => h("button", { type: "button", on: { click: () => box.close() } }, words);

function decision(box, place, file, found, changed) {
  const message = h("div");
  const words = t(found.exists ? "install.update" : "install.yes", { name: found.name });
  const take = async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    try {
      await post(found.exists ? `/v1/skills/${part(found.name)}/versions` : "/v1/skills", { form: formOf(file) });
      box.close();
      toast(t(found.exists ? "install.updated" : "install.done", { name: found.name }));
      changed(found.name);
    } catch (error) {
      put(message, problem(error));
      button.disabled = false;
    }
  };
  const given = { type: "button", disabled: found.refused, data: { focus: "" }, on: { click: take } };
  const isGrave = GRAVE.includes(found.report.worst);
  const yes = h(isGrave ? "button.danger" : "button.primary", given, words);
  const refusal = found.refused && h("p.refused", { role: "alert" }, icon("warning", 16), t("install.refused"));
  return h("footer.decision", refusal, message, h("div.actions", yes, closing(box, t("action.cancel"))));
}
