/* What a reader of the page's structure would complain of. */

window.complaints = () => {
  const found = [];
  const isShown = (node) => node.checkVisibility({ opacityProperty: false, visibilityProperty: true });

  function nameOf(node) {
    const labelled = node.getAttribute("aria-labelledby");
    return (
      node.getAttribute("aria-label") ||
      (labelled && document.getElementById(labelled)?.textContent) ||
      [...(node.labels ?? [])].map((label) => label.textContent).join("") ||
      (["INPUT", "TEXTAREA", "SELECT"].includes(node.tagName) ? "" : node.textContent)
    ).trim();
  }

  for (const node of document.querySelectorAll("a, button, input, select, textarea, dialog, nav, [role=tabpanel]")) {
    if (isShown(node) && !nameOf(node)) found.push(`no name: ${node.outerHTML.slice(0, 120)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: #${id}`);
  if (document.querySelectorAll("main").length !== 1) found.push("not one main");
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  for (const node of document.querySelectorAll("[style]")) {
    const names = [...node.style];
    if (names.some((name) => !["width", "left", "height"].includes(name))) found.push(`style: ${names}`);
  }
  if (document.scrollingElement.scrollWidth > innerWidth) found.push("wider than the window");
  for (const node of document.querySelectorAll("main, .split-detail, .split-list, .thread, .page")) {
    if (isShown(node) && node.scrollWidth > node.clientWidth + 1) found.push(`too wide: ${node.className || node.tagName} ${node.scrollWidth} > ${node.clientWidth}`);
  }

  const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const parts = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);

  function behind(node) {
    for (let at = node; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  }

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !isShown(node) || node.closest("[disabled], noscript, .unseen, .skip, option")) continue;
    const [one, other] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${node.className} "${walker.currentNode.data.slice(0, 40)}"`);
  }
  const key = /^(screen|nav|switch|theme|action|state|error|count|signin|chat|call|skill|trigger|finish|approvals|answer|skills|origin|level|versions|edit|install|report|playground|match|part|runs|outcome|limit|traces|candidate|span|doctor|check|audit)\.[a-z_.0-9]+$/;
  for (const node of document.querySelectorAll("main *, nav *")) {
    if (!node.children.length && key.test(node.textContent.trim()) && !node.closest("td, pre, .prose")) found.push(`no words: ${node.textContent}`);
  }
  return found;
};
