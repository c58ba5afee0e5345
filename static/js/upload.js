// The upload page: what the files would do is shown first, then they are sent in small requests.
"use strict";

const HASHERS = 4;
const QUICK_FILES = 20; // compared sooner than anybody looks
const ROWS_MAX = 1000;
const SENT = new Set(["new", "changed", "renamed", "archive"]);
const WORDS = {
  new: gettext("New"), changed: gettext("Replace"), renamed: gettext("Keep both"), archive: gettext("Extract"), skipped: gettext("Skip"),
  unchanged: gettext("Unchanged"), rejected: gettext("Rejected"), would_delete: gettext("Delete"),
};
const TONES = { new: "good", changed: "watch", renamed: "accent", archive: "accent", rejected: "bad", would_delete: "bad" };
const CLASHES = new Set(["changed", "skipped", "renamed"]);
const ORDER = ["rejected", "would_delete", "changed", "renamed", "skipped", "new", "archive", "unchanged"];
const CHOICES = [["replace", gettext("Replace")], ["skip", gettext("Skip")], ["keep_both", gettext("Keep both")]];
const JUNK = /(^|\/)(\.[^/]*|__MACOSX|Thumbs\.db|desktop\.ini)(\/|$)/;

const form = find("[data-upload]");
const part = (name) => find(`[data-${name}]`, form);
const results = find("#upload-results", form);
const bar = find("progress", form);
const button = find("[type=submit]", form);
const grouped = (count) => count.toLocaleString(document.documentElement.lang);
const filesOf = (count) => filled(ngettext("%(count)s file", "%(count)s files", count), { count: grouped(count) });
const documentsOf = (count) => filled(ngettext("%(count)s document", "%(count)s documents", count), { count: grouped(count) });
const sized = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

let items = []; // {file, path, sha256, choice, ticked, line, members, cell}
let missing = []; // {line, ticked}: what a sync would delete
let hidden = 0;
let shown = ""; // the status that the table is filtered by
let turn = 0; // of the look that is under way; an older one stops
let looking = Promise.resolve();
let sending = false;
let failed = [];

class Refusal extends Error {}
const LOGGED_OUT = gettext("your session may have expired; log in in another tab");

async function post(address, body, headers = {}) {
  const token = find("[name=csrfmiddlewaretoken]", form).value;
  const response = await fetch(address, { method: "POST", body, headers: { "X-CSRFToken": token, "HX-Request": "true", ...headers } });
  const answer = await response.json().catch(() => null);
  if (response.status === 401) throw new Refusal(LOGGED_OUT); // the files that were chosen would not survive a way to the log-in
  if (!response.ok) throw new Refusal(answer?.detail ?? filled(gettext("server error %(status)s"), { status: response.status }));
  if (answer === null) throw new Refusal(LOGGED_OUT);
  return answer;
}
const postJson = (address, values) => post(address, JSON.stringify(values), { "Content-Type": "application/json" });

// --- choosing: files, folders, and both dropped together
const pathOf = (file) => file.webkitRelativePath || file.name;

async function readEntry(entry, found) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject)).catch(() => null);
    if (file) found.push({ file, path: entry.fullPath.replace(/^\//, "") });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)).catch(() => []);
    if (!entries.length) return;
    for (const inner of entries) await readEntry(inner, found);
  }
}

async function readDropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }));
  const found = [];
  for (const entry of entries) await readEntry(entry, found);
  return found;
}

function add(found) {
  if (!found.length || sending) return;
  const known = new Map(items.map((item) => [item.path, item]));
  for (const { file, path } of found) {
    if (JUNK.test(path)) hidden += 1;
    else known.set(path, { file, path, sha256: null, choice: "", ticked: true, members: [] });
  }
  items = [...known.values()].sort((one, other) => (one.path < other.path ? -1 : 1));
  failed = [];
  results.replaceChildren();
  part("done").hidden = true;
  part("again").hidden = true;
  part("sent").textContent = "";
  look();
  looking.then(showNext);
}

// what comes next is the button, or the list where nothing is to be sent; whoever has moved on is left where they are
function showNext() {
  const focused = document.activeElement;
  if (part("review").hidden || (focused !== document.body && !focused.closest(".drop"))) return;
  part("review").scrollIntoView({ block: "nearest" });
  (button.disabled ? find("#review-title") : button).focus();
}

const addFrom = (input) => add([...input.files].map((file) => ({ file, path: pathOf(file) })));
on("change", "[data-upload] [type=file]", addFrom);
for (const type of ["dragenter", "dragover"]) {
  on(type, ".drop", (zone, event) => {
    event.preventDefault();
    zone.dataset.over = "";
  });
}
on("dragleave", ".drop", (zone, event) => {
  if (!zone.contains(event.relatedTarget)) delete zone.dataset.over;
});
on("drop", ".drop", async (zone, event) => {
  event.preventDefault();
  delete zone.dataset.over;
  add(await readDropped(event.dataTransfer));
});

// --- looking: hashes here, the plan from the server
async function hash(file) {
  if (!crypto.subtle || file.size > Number(form.dataset.limit)) return "";
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function hashAll(mine) {
  const waiting = items.filter((item) => item.sha256 === null);
  let done = 0;
  const work = async () => {
    for (let item = waiting.pop(); item && mine === turn; item = waiting.pop()) {
      item.sha256 = await hash(item.file).catch(() => "");
      bar.value = ++done;
      part("state").textContent = filled(gettext("Comparing: %(done)s of %(files)s"), { done: grouped(done), files: filesOf(bar.max) });
    }
  };
  bar.max = waiting.length || 1;
  bar.value = 0;
  bar.hidden = waiting.length < QUICK_FILES;
  await Promise.all(Array.from({ length: HASHERS }, work));
  bar.hidden = true;
}

const topFolder = () => {
  const tops = new Set(items.map((item) => (item.path.includes("/") ? item.path.split("/")[0] : "")));
  return tops.size === 1 ? [...tops][0] : "";
};
const isSync = () => !part("sync").hidden && find("#id_sync").checked;

const names = (field) => form.elements[field].value.split(",").map((name) => name.trim()).filter(Boolean);

// Who may read the files, as the plan's request has it; null where nothing is said.
function access() {
  const [groups, users] = [names("access_groups"), names("access_users")];
  const said = form.elements.access.value;
  if (!said && !groups.length && !users.length) return null;
  return said === "open" ? { restricted: false } : { groups, users };
}

function labels() {
  const tags = form.elements.tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
  const values = { tags: tags.length ? tags : null, metadata: null, language: form.elements.language.value.trim() || null, access: access() };
  try {
    values.metadata = JSON.parse(form.elements.metadata.value || "null");
  } catch {
    // the server says what is wrong with it when the files are sent
  }
  if (typeof values.metadata !== "object" || Array.isArray(values.metadata)) values.metadata = null;
  return values;
}

function look() {
  looking = lookNow(++turn);
}

async function lookNow(mine) {
  const folder = topFolder();
  part("sync").hidden = !folder;
  part("sync-name").textContent = folder;
  button.disabled = !part("review").checkVisibility();
  part("clear").hidden = false;
  part("state").textContent = gettext("Comparing with stored documents");
  try {
    await hashAll(mine);
    if (mine !== turn) return;
    const plan = items.length ? await postJson(form.dataset.plan, {
      entries: items.map((item) => ({ name: item.path, sha256: item.sha256, size: item.file.size, on_clash: item.choice })),
      on_clash: form.elements.on_clash.value,
      delete_missing: isSync(),
      prefix: isSync() ? folder : "",
      ...labels(),
    }) : { items: [] };
    if (mine !== turn) return;
    const kept = new Map(missing.map((entry) => [entry.line.doc_id, entry.ticked]));
    items.forEach((item, number) => { item.line = plan.items[number]; });
    missing = plan.items.slice(items.length).map((line) => ({ line, ticked: kept.get(line.doc_id) ?? false }));
    part("state").textContent = "";
    render();
    await lookInside(mine);
  } catch (error) {
    if (mine !== turn) return;
    part("state").textContent = filled(gettext("Preview failed: %(reason)s. Select the files again."), { reason: error.message });
  }
  if (mine === turn) describe();
}

async function lookInside(mine) {
  for (const item of items.filter((each) => each.line.status === "archive")) {
    const asked = JSON.stringify([item.choice || form.elements.on_clash.value, form.elements.tags.value, form.elements.language.value, form.elements.metadata.value, access()]);
    if (item.inside?.asked !== asked) item.inside = { asked, plan: await readInside(item, mine) };
    if (mine !== turn) return;
    const { plan } = item.inside;
    if (plan.error) item.inside = null;
    if (plan.error) item.line = { ...item.line, reason: filled(gettext("It could not be read: %(reason)s"), { reason: plan.error.message }) };
    else [item.line, ...item.members] = plan.items;
    item.line = { ...item.line, name: item.path };
    if (!item.members.length || item.members.some((line) => SENT.has(line.status))) continue;
    item.line = { ...item.line, status: item.line.status === "rejected" ? "rejected" : "unchanged", reason: filled(gettext("No files: %(reason)s"), { reason: item.line.reason }) };
  }
  part("state").textContent = "";
  render();
}

async function readInside(item, mine) {
  const data = new FormData(form);
  data.set("uploads", item.file);
  data.set("doc_ids", item.line.asked);
  if (item.choice) data.set("on_clash", item.choice);
  if (mine === turn) part("state").textContent = filled(gettext("Reading %(name)s"), { name: item.path });
  return post(form.dataset.members, data).catch((error) => ({ error }));
}

// --- the table of what will happen
const element = (name, text = "", className = "") => Object.assign(document.createElement(name), { textContent: text, className });

function chip(status) {
  const mark = element("span", WORDS[status], "chip");
  if (TONES[status]) mark.dataset.tone = TONES[status];
  return mark;
}

function row(line, { item = null, gone = null, inner = false }) {
  const tr = document.createElement("tr");
  tr.dataset.status = line.status;
  const cells = ["td", "th", "td", "td"].map((name) => element(name));
  const [check, name, size, what] = cells;
  [check.className, name.className, size.className, name.scope] = ["check", "wide", "num muted later", "row"];
  if (inner) tr.dataset.inner = "";
  if (!inner && (gone || SENT.has(line.status))) {
    const box = Object.assign(element("input"), { type: "checkbox", checked: (gone ?? item).ticked });
    box.setAttribute("aria-label", filled(gone ? gettext("Delete %(name)s") : gettext("Upload %(name)s"), { name: gone ? line.doc_id : line.name }));
    box.addEventListener("change", () => {
      (gone ?? item).ticked = box.checked;
      describe();
    });
    check.append(box);
  }
  name.append(element("span", inner ? `↳ ${line.name}` : gone ? line.doc_id : line.name, "path"));
  size.textContent = gone ? "" : sized(line.size);
  what.append(chip(line.status));
  const clashes = [line, ...(item?.members ?? [])].some((one) => CLASHES.has(one.status));
  if (item && !inner && clashes) what.append(choice(item, line));
  const why = line.status === "renamed" ? filled(gettext("as %(name)s"), { name: line.doc_id }) : line.reason;
  if (why) what.append(element("span", why, "sub"));
  tr.append(...cells);
  if (item && !inner) item.cell = what;
  return tr;
}

function choice(item, line) {
  const select = element("select", "", "small");
  select.setAttribute("aria-label", filled(gettext("Action for %(name)s"), { name: line.name }));
  const chosen = item.choice || form.elements.on_clash.value;
  for (const [value, word] of CHOICES) select.append(Object.assign(element("option", word), { value, selected: value === chosen }));
  select.addEventListener("change", () => {
    item.choice = select.value;
    look();
  });
  return select;
}

function lines() {
  const all = missing.map((gone) => ({ line: gone.line, gone }));
  for (const item of items) {
    all.push({ line: item.line, item });
    for (const line of item.members ?? []) all.push({ line, item, inner: true });
  }
  return all;
}

function render() {
  const all = lines();
  const counts = new Map();
  for (const { line } of all) counts.set(line.status, (counts.get(line.status) ?? 0) + 1);
  if (shown && !counts.has(shown)) shown = "";
  const chips = [["", gettext("All"), all.length], ...ORDER.filter((status) => counts.has(status)).map((status) => [status, WORDS[status], counts.get(status)])];
  part("totals").replaceChildren(...chips.map(([status, word, count]) => {
    const one = element("button", `${word} ${grouped(count)}`, "chip");
    one.type = "button";
    one.dataset.only = status;
    one.setAttribute("aria-pressed", String(status === shown));
    if (TONES[status]) one.dataset.tone = TONES[status];
    return one;
  }));
  const rank = ({ line, inner }) => (inner ? -1 : ORDER.indexOf(line.status));
  const wanted = all.filter(({ line }) => !shown || line.status === shown);
  const groups = [];
  for (const entry of wanted) (rank(entry) < 0 && groups.length ? groups.at(-1) : (groups.push([]), groups.at(-1))).push(entry);
  groups.sort((one, other) => ORDER.indexOf(one[0].line.status) - ORDER.indexOf(other[0].line.status));
  const sorted = groups.flat();
  find("tbody", form).replaceChildren(...sorted.slice(0, ROWS_MAX).map((entry) => row(entry.line, entry)));
  part("more").hidden = sorted.length <= ROWS_MAX;
  part("more").textContent = filled(gettext("The first %(shown)s of %(count)s rows are shown. Selected files in the rest are uploaded too."), { shown: grouped(ROWS_MAX), count: grouped(sorted.length) });
  part("review").hidden = !all.length;
  describe();
}
on("click", "[data-only]", (one) => {
  shown = one.dataset.only;
  render();
  find(`[data-only="${shown}"]`, form)?.focus();
});

const toSend = () => items.filter((item) => item.line && SENT.has(item.line.status) && item.ticked);
const toDelete = () => missing.filter((gone) => gone.ticked).map((gone) => gone.line.doc_id);

function describe() {
  const files = toSend();
  const going = toDelete();
  const bytes = files.reduce((sum, item) => sum + item.file.size, 0);
  const notes = [];
  if (files.length) notes.push(filled(gettext("%(size)s to upload"), { size: sized(bytes) }));
  if (hidden) notes.push(filled(ngettext("%(count)s hidden file skipped", "%(count)s hidden files skipped", hidden), { count: grouped(hidden) }));
  if (!crypto.subtle) notes.push(gettext("preview needs HTTPS; unchanged files are detected during the upload"));
  part("note").textContent = notes.join(" · ");
  const uploads = files.length ? filled(gettext("Upload %(files)s"), { files: filesOf(files.length) }) : "";
  const deletes = going.length ? filled(gettext("delete %(documents)s"), { documents: documentsOf(going.length) }) : "";
  const words = [uploads, deletes].filter(Boolean).join(gettext(" and "));
  button.textContent = words ? words[0].toUpperCase() + words.slice(1) : items.length ? gettext("Nothing to upload") : gettext("Upload");
  button.disabled = sending || !words;
  const boxes = findAll("tbody tr:not([data-status=would_delete]) [type=checkbox]", form);
  const all = part("all");
  all.checked = boxes.length > 0 && boxes.every((box) => box.checked);
  all.indeterminate = !all.checked && boxes.some((box) => box.checked);
}
on("change", "[data-upload] [data-all]", (all) => {
  for (const item of items) if (!shown || item.line.status === shown) item.ticked = all.checked;
  render();
});
on("change", "#id_sync, #id_on_clash, #id_tags, #id_language, #id_metadata, #id_access, #id_access_groups, #id_access_users", () => {
  if (items.length && !sending) look();
});
on("click", "[data-clear]", () => {
  clear();
  results.replaceChildren();
  part("done").hidden = true;
  part("sent").textContent = "";
});

function clear() {
  turn += 1;
  [items, missing, hidden, shown] = [[], [], 0, ""];
  findAll("[type=file]", form).forEach((input) => { input.value = ""; });
  for (const name of ["review", "sync", "clear", "again"]) part(name).hidden = true;
  find("#id_sync").checked = false;
  button.hidden = false;
  part("state").textContent = "";
  bar.hidden = true;
  describe();
}

part("folder").hidden = false;
part("choose").hidden = false; // in place of the browser's own button, which says that no file is chosen
find("#id_uploads").classList.add("sr-only");
form.elements.on_clash.closest(".field").querySelector("label").textContent = gettext("If a document already exists");
describe();
findAll("[type=file]", form).forEach(addFrom); // chosen before this script had arrived, or kept by the browser on Back
