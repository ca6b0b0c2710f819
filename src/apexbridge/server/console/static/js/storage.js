/* localStorage: language and theme, never a secret. */

const PREFIX = "apexbridge.";

export function remembered(name) {
  try {
    return localStorage.getItem(PREFIX + name) ?? "";
  } catch {
    return "";
  }
}

export function remember(name, value) {
  try {
    if (value) localStorage.setItem(PREFIX + name, value);
    else localStorage.removeItem(PREFIX + name);
  } catch {
    /* A browser that keeps nothing still shows everything. */
  }
}
