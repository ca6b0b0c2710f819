/* SVG icons. */

import { s } from "./dom.js";

const PATHS = {
  chat: "M4 5.5h16v10H10l-4.5 4v-4H4z",
  skills: "M12 3.5l8 4.2v8.6l-8 4.2-8-4.2V7.7zM4 7.7l8 4.3 8-4.3M12 12v8.5",
  playground: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.3 15.3L20 20M8 10.5h5M10.5 8v5",
  runs: "M4 5h16v14H4zM7.5 9l3 3-3 3M12.5 15h4",
  traces: "M4 6h9M8 12h9M12 18h8",
  approvals: "M12 3.5l7 2.8v5.2c0 4.4-2.9 7.6-7 9-4.1-1.4-7-4.6-7-9V6.3zM9 11.8l2.2 2.2 3.9-4.2",
  doctor: "M3.5 12.5h4l2.5-6 4 11 2.5-5h4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  back: "M14.5 5.5L8 12l6.5 6.5",
  chevron: "M9 5.5l6.5 6.5L9 18.5",
  tool: "M14.5 5.2a4.5 4.5 0 0 0-5.6 5.7L4 15.8V20h4.2l4.9-4.9a4.5 4.5 0 0 0 5.7-5.6l-2.9 2.9-2.8-.7-.7-2.8z",
  spark: "M12 3.5l2 6.5 6.5 2-6.5 2-2 6.5-2-6.5L3.5 12l6.5-2z",
  warning: "M12 4.5L21 19.5H3zM12 10v4.5M12 17v.4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  upload: "M12 15.5V4.5M7.5 9L12 4.5 16.5 9M4.5 15v4.5h15V15",
  trash: "M5 7h14M9.5 7V4.5h5V7M7 7l.8 12.5h8.4L17 7M10.3 10.5v5.5M13.7 10.5v5.5",
  pin: "M9 4h6l-.8 6 3.3 3.5H6.5L9.8 10zM12 13.5V20",
  edit: "M4.5 19.5l1-4L16 5l3 3L8.5 18.5zM13.8 7.2l3 3",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4.3l3 1.8",
  refresh: "M19.5 12a7.5 7.5 0 1 1-2.2-5.3M19.5 4v4.5H15",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  language:
    "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM4 12h16M12 4c2.6 2.3 3.8 5 3.8 8s-1.2 5.7-3.8 8" +
    "c-2.6-2.3-3.8-5-3.8-8S9.4 6.3 12 4z",
  leave: "M10 4.5H5v15h5M14 8l4 4-4 4M9.5 12H18",
  file: "M6 3.5h8l4 4v13H6zM14 3.5v4h4",
  menu: "M4 7h16M4 12h16M4 17h16",
};

export function icon(name, size = 18) {
  const shape = { viewBox: "0 0 24 24", width: size, height: size, "aria-hidden": "true", class: "icon" };
  return s("svg", shape, s("path", { d: PATHS[name] }));
}

/** Logo: a bridge. */
export function brand(size = 26) {
  const shape = { viewBox: "0 0 32 32", width: size, height: size, "aria-hidden": "true", class: "brand-mark" };
  return s(
    "svg",
    shape,
    s("rect", { width: 32, height: 32, rx: 8 }),
    s("path", { class: "arch", d: "M5 23C9 10 23 10 27 23" }),
    s("path", { class: "deck", d: "M3.5 23h25M11 16.2V23M16 13.4V23M21 16.2V23" }),
  );
}
