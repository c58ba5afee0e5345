// What forms and links cannot do alone. Every page works without this file.
"use strict";

const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];
const on = (type, selector, act) =>
  document.addEventListener(type, (event) => {
    const element = event.target instanceof Element && event.target.closest(selector);
    if (element) act(element, event);
  });
const hasLetters = () => localStorage.getItem("letters") !== "off"; // whether single letters are shortcuts here
const isPlainClick = (event) => event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

// --- theme: the cookie is what the server reads; local storage is what Django's admin reads
on("click", "[data-theme-form] button", (button, event) => {
  event.preventDefault();
  const theme = button.value;
  document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  findAll("[data-theme-form] button").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  button.closest("dialog")?.close();
});

// --- times: the server writes UTC, the page shows the time zone of the browser (in the form 2026-01-31 08:00:00)
const ISO_LOCALE = "sv-SE";
const TIME_ZONE = chosenTimeZone();
function chosenTimeZone() { // of the page Appearance; undefined, which is the browser's, for none and for one that it does not know
  const [, zone] = /(?:^|; )timezone="?([\w/+-]+)/.exec(document.cookie) ?? [];
  try {
    return zone && new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}
function showTimes(root = document) {
  for (const time of findAll("time[datetime]", root)) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = moment.toLocaleString(ISO_LOCALE, { timeZoneName: "short", timeZone: TIME_ZONE });
    if (time.dataset.form === "exact") {
      time.textContent = moment.toLocaleString(ISO_LOCALE, { dateStyle: "short", timeStyle: "short", timeZone: TIME_ZONE });
    } else if (time.dataset.form === "date") time.textContent = moment.toLocaleDateString(ISO_LOCALE, { timeZone: TIME_ZONE });
  }
}
document.addEventListener("htmx:load", (event) => showTimes(event.target));
showTimes();

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

// --- a list that was filtered anew: the focus is on the chip that was used
document.addEventListener("htmx:afterSwap", (event) => {
  const chip = event.detail.requestConfig?.elt?.closest(".filter[id]");
  if (chip) find(`#${CSS.escape(chip.id)} > details > summary`)?.focus();
});

// --- command palette and keys
// what the page below has for its object: buttons of its head, tabs. They act as if they were pressed there.
function showPageActions(words) {
  const list = find("#palette-actions ul");
  const named = findAll("main .head .actions :is(a, button), main .tabs > a, main .subtabs > a").map((action) =>
    [action, action.getAttribute("aria-label") ?? action.textContent.trim().replace(/\s+/g, " ")]);
  const matching = named.filter(([action, name]) => !action.disabled && name.toLowerCase().includes(words.trim().toLowerCase()));
  list.replaceChildren(...(words.trim() ? matching : []).map(([action, name]) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.addEventListener("click", () => {
      find("#palette").close();
      action.click();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
  find("#palette-actions").hidden = !list.children.length;
}
on("input", "#palette [name=q]", (input) => showPageActions(input.value));

function openPalette() {
  const palette = find("#palette");
  if (!palette || palette.open) return;
  const input = find("input", palette);
  input.value = "";
  showPageActions("");
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
  }
});
find("#palette")?.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const input = find("#palette input");
  const stops = [input, ...findAll("#palette .results :is(a, button)")];
  const next = stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
  stops[(next + stops.length) % stops.length].focus();
});
// Enter takes the first that is found for what is typed, and waits for it
let isTaking = false;
function takeFirst() {
  const form = find("#palette form");
  isTaking = find("#palette-results [data-words]")?.dataset.words !== form.elements.q.value.trim();
  if (isTaking) return;
  const first = find("#palette .results :is(a, button)");
  if (first) first.click();
  else form.submit();
}
find("#palette form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  takeFirst();
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id === "palette-results" && isTaking) takeFirst();
});
on("input", "#palette input", () => { isTaking = false; });

// --- Ctrl+Enter sends the form that is being typed into
on("keydown", "textarea[data-send]", (area, event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    area.form.requestSubmit();
  }
});

// --- texts: gettext and ngettext come from language/texts.js
const filled = (text, values) => interpolate(text, values, true);

// --- toasts
// one that tells of a success goes after a while, unless somebody points at it or is in it
on("click", "[data-dismiss]", (button) => button.closest(".toast, .banner").remove());
const TOAST_MS = 5000;
const TOAST_WITH_UNDO_MS = 15000;
function letGo(toast) {
  setTimeout(() => {
    if (toast.matches(":hover, :focus-within")) letGo(toast);
    else toast.remove();
  }, find("a, form", toast) ? TOAST_WITH_UNDO_MS : TOAST_MS);
}
const letToastsGo = () => findAll(".toast:not([data-tone=bad], [data-leaves])").forEach((toast) => {
  toast.dataset.leaves = "";
  letGo(toast);
});
letToastsGo();
document.addEventListener("htmx:oobAfterSwap", letToastsGo);
function say(text) {
  const toast = find("#toast-form").content.cloneNode(true);
  find("p", toast).textContent = text;
  find("#toasts").append(toast);
}

// --- a session that has ended: to the log-in and back, with what was typed. The browser keeps it for this tab alone.
const TYPED = "ragd-typed";
const here = () => location.pathname + location.search;
const isLoggingIn = location.pathname.startsWith("/accounts/");
function keepTyped() {
  if (isLoggingIn) return;
  const fields = findAll("main :is(input, textarea, select)[name]").filter((field) =>
    !["hidden", "password", "file", "submit", "button"].includes(field.type) && !field.closest("#toasts"));
  const values = fields.map((field) => [field.name, field.value, field.checked ?? null]);
  if (values.length) sessionStorage.setItem(TYPED, JSON.stringify({ page: here(), values, waits: false }));
}
function goToLogin(response) {
  const login = response.headers?.get("Ragd-Login") ?? response.getResponseHeader?.("Ragd-Login");
  if (!login) return false;
  keepTyped();
  location.assign(`${login}?next=${encodeURIComponent(here())}`);
  return true;
}
function bringBackTyped() {
  const kept = JSON.parse(sessionStorage.getItem(TYPED) ?? "null");
  if (!kept) return;
  if (isLoggingIn) { // it waits until the log-in is done
    sessionStorage.setItem(TYPED, JSON.stringify({ ...kept, waits: true }));
    return;
  }
  sessionStorage.removeItem(TYPED);
  if (!kept.waits || kept.page !== here()) return;
  const fields = findAll("main :is(input, textarea, select)[name]");
  for (const [name, value, checked] of kept.values) {
    const at = fields.findIndex((field) => field.name === name && (checked === null || field.type === "text" || field.value === value || !/checkbox|radio/.test(field.type)));
    if (at < 0) continue;
    const [field] = fields.splice(at, 1);
    if (/checkbox|radio/.test(field.type)) field.checked = checked;
    else field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}
document.addEventListener("submit", (event) => { if (event.target.method === "post") keepTyped(); }, true);
bringBackTyped();

// --- a form that was refused opens at the first field that is wrong
findAll("main [aria-invalid=true]").find((field) => field.checkVisibility())?.focus();

// --- htmx: a part is swapped in whatever its status; anything else that fails is said
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if (goToLogin(xhr)) event.detail.shouldSwap = false;
  else if (xhr.getResponseHeader("Ragd-Part")) event.detail.shouldSwap = true;
  else if (xhr.status >= 400) say(filled(gettext("Error %(status)s. Reload the page, or try again in a moment."), { status: xhr.status }));
});
document.addEventListener("htmx:sendError", () => say(gettext("The server is not responding. Try again in a moment.")));

// --- copy
on("click", "[data-copy]", async (button) => {
  const source = find(button.dataset.copy);
  await navigator.clipboard.writeText(source.value ?? source.textContent);
  const label = button.getAttribute("aria-label");
  button.setAttribute("aria-label", gettext("Copied"));
  find("use", button).setAttribute("href", "#i-check");
  setTimeout(() => {
    button.setAttribute("aria-label", label);
    find("use", button).setAttribute("href", "#i-copy");
  }, 1500);
});

// --- forms whose page takes a while say so; the page that comes back with the Back button does not
on("submit", "form[data-waits]", (form) => form.classList.add("htmx-request"));
window.addEventListener("pageshow", () => findAll("form[data-waits]").forEach((form) => form.classList.remove("htmx-request")));

// --- waterfalls: fold and unfold all rows
on("click", "[data-fold]", (button) => {
  findAll("details:not(.quiet)", button.closest(".waterfall-box")).forEach((row) => { row.open = button.dataset.fold === "open"; });
});

// --- expert settings: the fold stays as the person left it, and says what is filled in while it is closed
document.addEventListener("toggle", ({ target }) => {
  if (!target.matches?.("details[data-expert]")) return;
  showAlsoSet(target);
  if (target.open === "kept" in target.dataset) return;
  if (target.open) target.dataset.kept = "";
  else delete target.dataset.kept;
  const body = new URLSearchParams({ do: "expert", open: target.open ? "on" : "" });
  const token = find("[name=csrfmiddlewaretoken]")?.value ?? "";
  fetch(target.dataset.expert, { method: "POST", body, headers: { "X-CSRFToken": token } });
}, true);
function showAlsoSet(fold) {
  const fields = findAll("input, select, textarea", fold).filter((each) => each.name && each.value && each.labels?.length);
  const output = find("[data-also-set]", fold);
  output.hidden = !fields.length;
  find("span", output).textContent = [...new Set(fields.map((each) => each.labels[0].firstChild.textContent.trim()))].join(", ");
}
on("change", "details[data-expert] :is(input, select, textarea)", (field) => showAlsoSet(field.closest("details[data-expert]")));

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
  const matching = find("[data-select-matching]", form);
  if (matching && chosen < boxes.length) matching.checked = false;
  const everything = matching?.checked ? matching.dataset.selectMatching : "";
  if (output) output.textContent = everything || chosen ? filled(gettext("%(count)s selected"), { count: everything || chosen }) : "";
}
on("change", "[data-select-matching]", (matching) => {
  findAll("[data-select]", matching.form).forEach((box) => { box.checked = matching.checked; });
  showSelection(matching.form);
});
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
    findAll(`[data-marker="${element.dataset.marker}"]`, element.closest("[data-scope]") ?? document).forEach((other) => other.classList.toggle("linked", active));
  }
}
for (const [type, active] of [["pointerover", true], ["focusin", true], ["pointerout", false], ["focusout", false]]) {
  on(type, "[data-chunks], [data-marker]", (element) => link(element, active));
}

// on a narrow page the tab that is open comes into view
findAll(".tabs > [aria-current], .subtabs > [aria-current]").forEach((tab) => {
  const bar = tab.parentElement;
  const beyond = tab.getBoundingClientRect().right - bar.getBoundingClientRect().right;
  if (beyond > 0) bar.scrollLeft += beyond + 24;
});

// the chunk that holds the cited place comes into view beside it
const citedCard = find("#cited") && find(".chunk.cited");
if (citedCard) {
  const pane = citedCard.closest(".pane");
  pane.scrollTop += citedCard.getBoundingClientRect().top - pane.getBoundingClientRect().top - 16;
}
