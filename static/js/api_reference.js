// Swagger UI has a dark theme by a class of its own: kept as the page's theme is, chosen or that of the system.
"use strict";
{
  const page = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => page.classList.toggle("dark-mode", page.dataset.theme ? page.dataset.theme === "dark" : system.matches);
  follow();
  system.addEventListener("change", follow);
}
