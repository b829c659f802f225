// Sets the theme before the first paint: the remembered choice, else what the system asks for.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem("accord.theme");
  } catch (_) {
    // Storage may be blocked; the system's choice is then all there is.
  }
  var dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
