/* One-click actions on a skill; destructive ones offer undo. */

import { part, post, remove } from "./api.js";
import { t } from "./i18n.js";
import { toast, toastError } from "./toast.js";

const at = (name, verb) => `/v1/skills/${part(name)}/${verb}`;

async function tried(action) {
  try {
    return await action();
  } catch (error) {
    toastError(error);
    return null;
  }
}

export function switchSkill(name, isOn, changed) {
  return tried(async () => {
    await post(at(name, isOn ? "enable" : "disable"));
    toast(t(isOn ? "skills.enabled" : "skills.disabled", { name }));
    changed(name);
  });
}

export function removeSkill(name, changed) {
  return tried(async () => {
    await remove(`/v1/skills/${part(name)}`);
    changed("");
    const undo = { label: t("action.undo"), action: () => bringBack(name, () => changed(name)) };
    toast(t("skills.removed", { name }), undo);
  });
}

export function bringBack(name, changed) {
  return tried(async () => {
    await post(at(name, "undo"));
    toast(t("skills.back", { name }));
    changed(name);
  });
}

export function pinSkill(name, isPinned, changed) {
  return tried(async () => {
    await post(at(name, isPinned ? "pin" : "unpin"), { body: {} });
    toast(t(isPinned ? "skills.pinned" : "skills.unpinned", { name }));
    changed(name);
  });
}

export function rollBack(name, version, changed) {
  return tried(async () => {
    await post(at(name, "rollback"), { body: { version } });
    toast(t("skills.rolled", { name, version }));
    changed(name);
  });
}
