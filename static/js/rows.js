// Rows of fields that stand for one text: metadata as JSON, which the server reads from the rows without this file, and
// typed filters.
"use strict";

const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const partsOf = (row) => ({ key: find("[name$='-key']", row), kind: find("select", row), value: find("[name$='-value']", row) });
const rowsOf = (box) => findAll("[data-row-of-metadata]", box);
const isBlank = (row) => !partsOf(row).key.value.trim() && !partsOf(row).value.value.trim();

// The field for a value follows the type; the text stays.
function adapt(row) {
  const { kind, value } = partsOf(row);
  const fits = kind.value !== "date" || !value.value || DAY.test(value.value);
  value.type = kind.value === "date" && fits ? "date" : "text";
  value.inputMode = kind.value === "number" ? "decimal" : "";
  if (kind.value === "truth") value.setAttribute("list", `${find("textarea", row.closest("[data-metadata-rows]")).id}-truth`);
  else value.removeAttribute("list");
}

// The value of a row as JSON; undefined where the server has to say what is wrong with it.
function written(row, box) {
  const { kind, value } = partsOf(row);
  const text = value.value.trim();
  const [yes, no] = findAll("[id$='-truth'] option", box).map((option) => option.value);
  const truths = { [yes]: "true", [no]: "false", true: "true", false: "false", yes: "true", no: "false" };
  if (kind.value === "number") return NUMBER.test(text) ? text.replace(/^(-?)0+(?=\d)/, "$1") : undefined;
  if (kind.value === "truth") return truths[text.toLowerCase()];
  if (kind.value === "date") return DAY.test(text) ? JSON.stringify(text) : undefined;
  if (kind.value === "list") return JSON.stringify(text.split(",").map((item) => item.trim()).filter(Boolean));
  if (kind.value === "text") return JSON.stringify(value.value);
  try {
    JSON.parse(text);
    return text;
  } catch {
    return undefined;
  }
}

function addRow(box) {
  const row = rowsOf(box).at(-1);
  if (isBlank(row)) return;
  const added = row.cloneNode(true);
  const { key, kind, value } = partsOf(added);
  [key.value, kind.value, value.value] = ["", "text", ""];
  row.after(added);
  adapt(added);
}

function write(box) {
  const rows = rowsOf(box).filter((row) => !isBlank(row));
  const keys = rows.map((row) => partsOf(row).key.value.trim());
  const values = rows.map((row) => written(row, box));
  const area = find("textarea", box);
  const whole = keys.every(Boolean) && new Set(keys).size === keys.length && values.every((value) => value !== undefined);
  const lines = keys.map((key, number) => `  ${JSON.stringify(key)}: ${values[number]}`);
  area.value = !whole ? find("[name$='-was']", box).value : lines.length ? `{\n${lines.join(",\n")}\n}` : "{}";
}

const kindOf = (value) => {
  if (typeof value === "boolean") return "truth";
  if (typeof value === "number") return "number";
  if (typeof value === "string") return DAY.test(value) ? "date" : value.includes("\n") ? "json" : "text";
  const plain = (item) => typeof item === "string" && item && item === item.trim() && !/[,\n]/.test(item);
  return Array.isArray(value) && value.length && value.every(plain) ? "list" : "json";
};

function read(box) {
  let values;
  try {
    values = JSON.parse(find("textarea", box).value || "{}");
  } catch {
    return; // the server says what is wrong with it
  }
  if (typeof values !== "object" || values === null || Array.isArray(values)) return;
  const [first, ...others] = rowsOf(box);
  others.forEach((row) => row.remove());
  const fill = (row, name, kind, text) => {
    const { key, kind: chosen, value } = partsOf(row);
    [key.value, chosen.value, value.type, value.value] = [name, kind, "text", text];
    adapt(row);
  };
  fill(first, "", "text", "");
  const [yes, no] = findAll("[id$='-truth'] option", box).map((option) => option.value);
  const told = { truth: (value) => (value ? yes : no), list: (value) => value.join(", "), json: JSON.stringify };
  for (const [name, value] of Object.entries(values)) {
    const kind = kindOf(value);
    const row = rowsOf(box).at(-1);
    fill(row, name, kind, (told[kind] ?? String)(value));
    addRow(box);
  }
}

for (const type of ["input", "change"]) {
  on(type, "[data-row-of-metadata]", (row, event) => {
    const box = row.closest("[data-metadata-rows]");
    adapt(row);
    addRow(box);
    write(box);
    if (event.type === "change") find("textarea", box).dispatchEvent(new Event("change", { bubbles: true }));
  });
}
on("change", "[data-metadata-rows] textarea", (area, event) => {
  if (event.isTrusted) read(area.closest("[data-metadata-rows]"));
});
document.addEventListener("htmx:load", (event) => findAll("[data-row-of-metadata]", event.target).forEach(adapt));

// --- rows that write a typed filter: the server draws them and says what they state
const offerBuilders = (root) => findAll("[data-filter-build]", root).forEach((fold) => { fold.hidden = false; });
document.addEventListener("htmx:load", (event) => offerBuilders(event.target.parentElement ?? document));
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("[data-filter-build][open]")) htmx.trigger(event.target.lastElementChild, "opened");
}, true);
// An answer to what the rows said before the last change is not shown: another request follows the change.
const builderOf = (target) => target.closest?.("[data-filter-build]");
const changes = new WeakMap(); // builder -> [changes so far, those that the last request told]
for (const type of ["input", "change"]) {
  document.addEventListener(type, ({ target }) => {
    const fold = builderOf(target);
    if (fold) changes.set(fold, [(changes.get(fold)?.[0] ?? 0) + 1, changes.get(fold)?.[1] ?? 0]);
  }, true); // htmx consumes them on their way up
}
document.addEventListener("htmx:beforeRequest", ({ target }) => {
  const fold = builderOf(target);
  if (fold) changes.set(fold, [changes.get(fold)?.[0] ?? 0, changes.get(fold)?.[0] ?? 0]);
});
document.addEventListener("htmx:beforeSwap", ({ target, detail }) => {
  const [now, told] = changes.get(builderOf(target)) ?? [0, 0];
  if (now !== told) detail.shouldSwap = false;
});
document.addEventListener("htmx:load", ({ target }) => {
  if (target.dataset?.expression === undefined) return;
  const input = document.getElementById(target.dataset.for);
  if (input.value === target.dataset.expression) return;
  input.value = target.dataset.expression;
  input.dispatchEvent(new Event("change", { bubbles: true }));
});
