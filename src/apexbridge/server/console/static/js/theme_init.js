/* Applies the stored theme before the first paint. */
(function () {
  try {
    const theme = localStorage.getItem("apexbridge.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    /* No storage: the system's theme it is. */
  }
})();
