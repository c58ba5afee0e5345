// What forms and links cannot do alone. Every page works without this file.
"use strict";

const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];
const on = (type, selector, act) =>
  document.addEventListener(type, (event) => {
    const element = event.target instanceof Element && event.target.closest(selector);
    if (element) act(element, event);
  });
const isPlainClick = (event) => event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

// --- theme: the cookie is what the server reads; local storage is what Django's admin reads
on("click", "[data-theme-form] button", (button, event) => {
  event.preventDefault();
  const theme = button.value;
  document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  findAll("[data-theme-form] button").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
});

// --- menus close on Escape and on a click elsewhere
document.addEventListener("click", (event) => {
  findAll("details[data-menu][open]").forEach((menu) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  findAll("details[data-menu][open]").forEach((menu) => {
    menu.open = false;
    find("summary", menu).focus();
  });
});

// --- dialogs: a link opens the page it leads to in a dialog or in the drawer
async function openPage(dialog, href, part) {
  try {
    const response = await fetch(href, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const content = find(part, page);
    if (!response.ok || !content) throw new Error(`no ${part} at ${href}`);
    find(".dialog-body", dialog).replaceChildren(document.importNode(content, true));
  } catch {
    location.assign(href);
    return false;
  }
  htmx.process(dialog);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  return true;
}

on("click", "a[data-dialog]", (link, event) => {
  if (!isPlainClick(event)) return;
  event.preventDefault();
  openPage(find("#dialog"), link.href, "#confirm");
});

on("click", "a[data-drawer]", async (link, event) => {
  if (!isPlainClick(event)) return;
  event.preventDefault();
  const drawer = find("#drawer");
  const alreadyOpen = drawer.open;
  if (!(await openPage(drawer, link.href, "#detail"))) return;
  if (alreadyOpen) history.replaceState({ drawer: true }, "", link.href);
  else history.pushState({ drawer: true }, "", link.href);
});

on("click", "[data-close]", (button) => button.closest("dialog").close());
on("click", "dialog", (dialog, event) => {
  if (event.target === dialog) dialog.close();
});
let leaving = false;
document.addEventListener("close", (event) => {
  if (event.target.id === "drawer" && history.state?.drawer) {
    leaving = true;
    history.back();
  }
}, true);
window.addEventListener("popstate", (event) => {
  const drawer = find("#drawer");
  if (leaving || drawer?.open) {
    leaving = false;
    event.stopImmediatePropagation(); // the page below is still the right one
    drawer.close();
  }
});

// --- command palette and keys
function openPalette() {
  const palette = find("#palette");
  if (!palette || palette.open) return;
  const input = find("input", palette);
  input.value = "";
  palette.showModal();
  input.focus();
  htmx.trigger(input, "opened");
}
on("click", "[data-palette]", (link, event) => {
  if (!isPlainClick(event)) return;
  event.preventDefault();
  openPalette();
});
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    const search = find("main [data-search]");
    if (search) search.focus();
    else openPalette();
  }
});
find("#palette")?.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const input = find("#palette input");
  const stops = [input, ...findAll("#palette-results a")];
  const next = stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
  stops[(next + stops.length) % stops.length].focus();
});
find("#palette form")?.addEventListener("submit", (event) => {
  const first = find("#palette-results a");
  if (!first) return;
  event.preventDefault();
  first.click();
});

// --- Ctrl+Enter sends the form that is being typed into
on("keydown", "textarea[data-send]", (area, event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    area.form.requestSubmit();
  }
});

// --- toasts
on("click", "[data-dismiss]", (button) => button.closest(".toast, .banner").remove());
function say(text) {
  const toast = find("#toast-form").content.cloneNode(true);
  find("p", toast).textContent = text;
  find("#toasts").append(toast);
}

// --- htmx: a part is swapped in whatever its status; anything else that fails is said
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if (xhr.getResponseHeader("Ragd-Part")) event.detail.shouldSwap = true;
  else if (xhr.status >= 400) say(`The server answered ${xhr.status}. Reload the page, or try again in a moment.`);
});
document.addEventListener("htmx:sendError", () => say("The server does not answer. Try again in a moment."));

// --- copy
on("click", "[data-copy]", async (button) => {
  const source = find(button.dataset.copy);
  await navigator.clipboard.writeText(source.value ?? source.textContent);
  const label = button.getAttribute("aria-label");
  button.setAttribute("aria-label", "Copied");
  find("use", button).setAttribute("href", "#i-check");
  setTimeout(() => {
    button.setAttribute("aria-label", label);
    find("use", button).setAttribute("href", "#i-copy");
  }, 1500);
});

// --- print
on("click", "[data-print]", () => window.print());

// --- selection with a bulk bar
function showSelection(form) {
  const boxes = findAll("[data-select]", form);
  const chosen = boxes.filter((box) => box.checked).length;
  const all = find("[data-select-all]", form);
  if (all) {
    all.checked = chosen > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
  const output = find("output", form);
  if (output) output.textContent = chosen ? `${chosen} selected` : "";
}
on("change", "[data-select-all]", (all) => {
  findAll("[data-select]", all.form).forEach((box) => { box.checked = all.checked; });
  showSelection(all.form);
});
on("change", "[data-select]", (box) => showSelection(box.form));

// --- the documents table follows the jobs, unless somebody is selecting
document.addEventListener("documents-changed", () => {
  if (find("#documents") && !find("#documents [data-select]:checked")) htmx.trigger("#documents", "refresh");
});

// --- chunks and text, citations and sources: pointing at one marks the other
function link(element, active) {
  for (const index of (element.dataset.chunks ?? "").split(" ").filter(Boolean)) {
    findAll(`.reader [data-chunks~="${index}"]`).forEach((other) => other.classList.toggle("active", active));
  }
  if (element.dataset.marker) {
    findAll(`[data-marker="${element.dataset.marker}"]`).forEach((other) => other.classList.toggle("linked", active));
  }
}
for (const [type, active] of [["pointerover", true], ["focusin", true], ["pointerout", false], ["focusout", false]]) {
  on(type, "[data-chunks], [data-marker]", (element) => link(element, active));
}

// the chunk that holds the cited place comes into view beside it
const citedCard = find("#cited") && find(".chunk.cited");
if (citedCard) {
  const pane = citedCard.closest(".pane");
  pane.scrollTop += citedCard.getBoundingClientRect().top - pane.getBoundingClientRect().top - 16;
}

// --- upload: files are dropped or chosen, then sent in small requests, each answered with one line per file
const BATCH_FILES = 20;
const BATCH_BYTES = 20_000_000;

function batches(files) {
  const result = [];
  let bytes = 0;
  for (const file of files) {
    const last = result.at(-1);
    if (!last || last.length >= BATCH_FILES || bytes + file.size > BATCH_BYTES) {
      result.push([file]);
      bytes = file.size;
    } else {
      last.push(file);
      bytes += file.size;
    }
  }
  return result;
}

function describeChosen(form) {
  const files = [...find("[type=file]", form).files];
  const kilobytes = files.reduce((sum, file) => sum + file.size, 0) / 1000;
  const noun = files.length === 1 ? "file" : "files";
  const size = kilobytes < 1000 ? `${Math.ceil(kilobytes)} kB` : `${(kilobytes / 1000).toFixed(1)} MB`;
  find("[data-chosen]", form).textContent = files.length ? `${size} in all` : "";
  find("[type=submit]", form).textContent = files.length ? `Upload ${files.length} ${noun}` : "Upload";
}
on("change", "[data-upload] [type=file]", (input) => describeChosen(input.form));

for (const type of ["dragenter", "dragover"]) {
  on(type, ".drop", (zone, event) => {
    event.preventDefault();
    zone.dataset.over = "";
  });
}
on("dragleave", ".drop", (zone, event) => {
  if (!zone.contains(event.relatedTarget)) delete zone.dataset.over;
});
on("drop", ".drop", (zone, event) => {
  event.preventDefault();
  delete zone.dataset.over;
  const input = find("[type=file]", zone);
  input.files = event.dataTransfer.files;
  describeChosen(input.form);
});

async function sendBatch(form, files) {
  const data = new FormData(form);
  data.delete("uploads");
  files.forEach((file) => data.append("uploads", file));
  const response = await fetch(form.action, {
    method: "POST",
    body: data,
    headers: { "HX-Request": "true", "HX-Target": "upload-results" },
  });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.text();
}

// the lines follow their jobs until these have ended
const LINES_AT_ONCE = 60;
const LOOK_EVERY_MS = 1500;
let isFollowing = false;

async function followLines(list) {
  if (isFollowing) return;
  isFollowing = true;
  for (;;) {
    const open = findAll("[data-job]", list).slice(0, LINES_AT_ONCE);
    if (!open.length) break;
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    const query = new URLSearchParams(open.map((line) => ["job", line.dataset.job]));
    const response = await fetch(`${list.dataset.lines}?${query}`).catch(() => null);
    if (response?.status === 404) break; // the collection is gone
    if (response?.ok) showLines(open, await response.text());
  }
  isFollowing = false;
}

function showLines(open, html) {
  const content = Object.assign(document.createElement("template"), { innerHTML: html }).content;
  const lines = new Map([...content.children].map((line) => [line.id, line]));
  const changed = open.filter((line) => !lines.get(line.id)?.dataset.job);
  for (const line of open) {
    if (lines.has(line.id)) line.replaceWith(lines.get(line.id));
    else delete line.dataset.job;
  }
  if (changed.length) htmx.trigger(document.body, "documents-changed");
}

function lineFor(file, why) {
  const line = document.createElement("li");
  const words = [document.createElement("span"), document.createElement("span"), document.createElement("span")];
  [words[0].textContent, words[1].textContent, words[2].textContent] = ["✕", file.name, `Not sent: ${why}. Upload it again.`];
  words[0].className = "bad";
  words[2].className = "why";
  line.append(...words);
  return line;
}

on("submit", "[data-upload]", async (form, event) => {
  const files = [...find("[type=file]", form).files];
  if (!files.length) return;
  event.preventDefault();
  const [results, bar, words, button] = ["#upload-results", "progress", "[data-sent]", "[type=submit]"].map((part) => find(part, form));
  results.replaceChildren();
  bar.hidden = false;
  bar.max = files.length;
  bar.value = 0;
  button.disabled = true;
  for (const batch of batches(files)) {
    try {
      results.insertAdjacentHTML("beforeend", await sendBatch(form, batch));
    } catch (error) {
      results.append(...batch.map((file) => lineFor(file, error.message)));
    }
    bar.value += batch.length;
    words.textContent = `${bar.value} of ${files.length} files sent`;
    htmx.trigger(document.body, "jobs-changed");
    followLines(results);
  }
  bar.hidden = true;
  button.disabled = false;
  find("[type=file]", form).value = "";
  describeChosen(form);
});
