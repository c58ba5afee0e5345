// Keys of the pages: what an element's data-key says, g and a letter for the places, j and k through lists, / to search,
// ? for help. An element carries data-key and aria-keyshortcuts alike. A key that another script has dealt with is left
// alone. On a page whose main field has data-takes-keys, every character is typed into that field instead.
"use strict";

(() => {
  const GO_MS = 1500; // how long g waits for its letter
  const ACTIVE = ":is(a, button, summary, label)[data-key]";
  const isTyping = (element) => element.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
  const isShown = (element) => element.checkVisibility() && !element.disabled;
  let goUntil = 0;

  function go(letter) {
    const target = find(`[data-go="${CSS.escape(letter)}"]`);
    target?.click();
    return Boolean(target);
  }

  // the rows of the list that has the focus, else of the first list of the page
  function moveFocus(step) {
    const focused = document.activeElement.closest(ROWS);
    const rows = findAll(ROWS).filter((row) => isShown(row) && rowLink(row));
    if (!rows.length) return false;
    const at = focused ? rows.indexOf(focused) + step : step > 0 ? 0 : rows.length - 1;
    const link = rowLink(rows[Math.min(Math.max(at, 0), rows.length - 1)]);
    link.focus();
    link.scrollIntoView({ block: "nearest" });
    return true;
  }

  function press(key) {
    const open = find("dialog[open]");
    const element = findAll(ACTIVE, open ?? document).filter((each) => each.dataset.key === key).find(isShown);
    element?.click();
    return Boolean(element);
  }

  function search() {
    const field = find("main [data-search]");
    if (field) field.focus();
    else openPalette();
    return true;
  }

  // the browser types the character into what has the focus once this event is over; a space scrolls or presses
  const isTyped = (event) => ["Dead", "Process"].includes(event.key) || ([...event.key].length === 1 && event.key !== " ");

  const nameOf = (element) => element.getAttribute("aria-label") ?? element.title.trim() ?? "";

  function showKeys() {
    const dialog = find("#keys-dialog");
    if (!dialog || find("dialog[open]")) return false;
    const list = find("[data-page-keys]", dialog);
    const seen = new Map();
    for (const element of findAll(ACTIVE).filter(isShown)) seen.set(element.dataset.key, nameOf(element) || element.textContent.trim().replace(/\s+/g, " "));
    list.replaceChildren(...[...seen].flatMap(([key, name]) => {
      const term = document.createElement("dt");
      term.append(Object.assign(document.createElement("kbd"), { textContent: key }));
      return [term, Object.assign(document.createElement("dd"), { textContent: name })];
    }));
    find("[data-has-rows]", dialog).hidden = !findAll(ROWS).some(rowLink);
    find("[data-has-page-keys]", dialog).hidden = !seen.size;
    dialog.showModal();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const field = find("dialog[open]") ? null : find("main [data-takes-keys]");
    if (field) {
      if (isTyped(event)) field.focus();
      return;
    }
    if (event.key.length === 1 && !hasLetters()) return;
    const goes = performance.now() < goUntil;
    goUntil = 0;
    let done = false;
    if (goes) done = go(event.key);
    else if (event.key === "?") done = showKeys();
    else if (press(event.key)) done = true;
    else if (find("dialog[open]")) return;
    else if (event.key === "/") done = search();
    else if (event.key === "g") {
      goUntil = performance.now() + GO_MS;
      done = true;
    } else if (event.key === "j" || event.key === "k") done = moveFocus(event.key === "j" ? 1 : -1);
    if (done) event.preventDefault();
  });

  const switchOf = find("[data-letters]"); // on the page Appearance
  if (switchOf) {
    switchOf.checked = hasLetters();
    find("[data-letters-section]").hidden = false;
    switchOf.addEventListener("change", () => localStorage.setItem("letters", switchOf.checked ? "on" : "off"));
  }

  on("click", "[data-keys]", (link, event) => {
    event.preventDefault();
    link.closest("details[data-menu]")?.removeAttribute("open");
    find("dialog[open]")?.close();
    showKeys();
  });
})();
