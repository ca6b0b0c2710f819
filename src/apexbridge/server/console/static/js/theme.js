/* Theme: light, dark, or the system's. */

import { remember, remembered } from "./storage.js";

export const themes = ["system", "light", "dark"];

export function currentTheme() {
  const kept = remembered("theme");
  return themes.includes(kept) ? kept : "system";
}

export function wear(theme) {
  remember("theme", theme === "system" ? "" : theme);
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
