/* Hash router: `#/skills/garden?tab=files` names a screen. */

const screens = new Map();
let open = null;
let place = null;
let opened = () => {};

/** A screen is { open(place, route) → { update?(route), close?() } }. */
export function screen(name, made) {
  screens.set(name, made);
}

export function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decoded);
  return { name: screens.has(name) ? name : "chat", rest, query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const address = (name, ...rest) => `#/${[name, ...rest].map(encodeURIComponent).join("/")}`;

export function go(hash) {
  if (location.hash === hash) show();
  else location.hash = hash;
}

/** Start to follow the URL hash. */
export function follow(where, onOpen) {
  place = where;
  opened = onOpen;
  addEventListener("hashchange", show);
  show({ anew: true });
}

export function unfollow() {
  removeEventListener("hashchange", show);
  close();
}

/** Show the screen of the URL; `anew` rebuilds it, for example in another language. */
export function show({ anew = false } = {}) {
  const now = route();
  if (open?.name === now.name && open.screen.update && !anew) {
    open.screen.update(now);
  } else {
    close();
    place.replaceChildren();
    open = { name: now.name, screen: screens.get(now.name).open(place, now) ?? {} };
  }
  opened(now);
}

function close() {
  open?.screen.close?.();
  open = null;
}
