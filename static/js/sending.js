// The upload page, second part: files that were looked at by upload.js are sent in small requests.
"use strict";

const GROUP_FILES = 20;
const GROUP_BYTES = 20_000_000;
const SENDERS = 2;

function groupsOf(files) {
  const groups = [];
  let bytes = 0;
  for (const item of files) {
    const last = groups.at(-1);
    if (!last || last.length >= GROUP_FILES || bytes + item.file.size > GROUP_BYTES) {
      groups.push([item]);
      bytes = item.file.size;
    } else {
      last.push(item);
      bytes += item.file.size;
    }
  }
  return groups;
}

function request(data, onBytes) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    xhr.open("POST", form.action);
    xhr.setRequestHeader("HX-Request", "true");
    xhr.setRequestHeader("HX-Target", "upload-results");
    xhr.upload.onprogress = (event) => onBytes(event.loaded);
    xhr.onload = () => resolve(xhr);
    xhr.onerror = () => reject(new Error(gettext("the server does not answer")));
    xhr.send(data);
  });
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function sendGroup(group, batch, onBytes) {
  const data = new FormData(form);
  data.delete("uploads");
  data.set("batch", batch);
  for (const item of group) {
    data.append("uploads", item.file, item.file.name);
    data.append("doc_ids", item.line.asked);
    data.append("choices", item.choice || form.elements.on_clash.value);
  }
  for (;;) {
    const xhr = await request(data, onBytes);
    if (xhr.status === 429) {
      const wait = Number(xhr.getResponseHeader("Retry-After")) || 5;
      part("state").textContent = filled(gettext("Queue full. Retrying in %(wait)s s"), { wait });
      await pause(wait * 1000);
      part("state").textContent = "";
      continue;
    }
    if (xhr.status === 401) throw new Error(LOGGED_OUT);
    if (xhr.status !== 200) throw new Error(filled(gettext("server error %(status)s"), { status: xhr.status }));
    if (!xhr.getResponseHeader("Ragd-Part")) throw new Error(LOGGED_OUT);
    const lines = Object.assign(document.createElement("template"), { innerHTML: xhr.responseText }).content;
    const refused = lines.querySelector("[data-refused]");
    if (refused) throw new Error(refused.textContent.trim());
    return lines;
  }
}

function lineFor(item, why) {
  const line = document.createElement("li");
  const mark = find("#upload-marks").content.querySelector("[data-mark=bad]").cloneNode(true);
  line.append(mark, element("span", item.path, "clip"), element("span", gettext("Upload failed"), "small bad"), element("span", `${why[0].toUpperCase()}${why.slice(1)}.`, "why"));
  line.dataset.failed = "";
  return line;
}

async function sendAll(files, batch) {
  const groups = groupsOf(files);
  const loaded = new Map();
  const bytes = files.reduce((sum, item) => sum + item.file.size, 0);
  let done = 0;
  bar.max = bytes || 1;
  bar.hidden = false;
  const tell = () => {
    const sent = Math.min(bytes, [...loaded.values()].reduce((sum, value) => sum + value, 0));
    bar.value = sent;
    part("sent").textContent = filled(gettext("%(done)s of %(files)s uploaded"), { done: grouped(done), files: filesOf(files.length) });
  };
  const work = async () => {
    for (let group = groups.shift(); group; group = groups.shift()) {
      for (const item of group) item.cell?.replaceChildren(element("span", gettext("Uploading"), "muted small"));
      const mine = group;
      try {
        const sent = await sendGroup(mine, batch, (value) => {
          loaded.set(mine, value);
          tell();
        });
        results.append(sent);
        done += mine.length;
        for (const item of mine) item.cell?.replaceChildren(element("span", gettext("Uploaded"), "small good"));
      } catch (error) {
        loaded.set(mine, 0);
        failed.push(...mine);
        results.append(...mine.map((item) => lineFor(item, error.message)));
        for (const item of mine) item.cell?.replaceChildren(element("span", gettext("Upload failed"), "small bad"));
      }
      tell();
      htmx.trigger(document.body, "jobs-changed");
      followLines(results);
    }
  };
  tell();
  await Promise.all(Array.from({ length: SENDERS }, work));
  bar.hidden = true;
  return done;
}

async function send(files, going) {
  sending = true;
  button.hidden = false;
  failed = [];
  findAll("[data-failed]", results).forEach((line) => line.remove());
  describe();
  const folder = topFolder();
  let words = "";
  try {
    const about = new FormData();
    about.set("kind", isSync() || going.length ? "sync" : folder ? "folder" : "upload");
    about.set("label", folder || (files.length === 1 ? files[0].path : filesOf(files.length)));
    const { batch, address } = await post(form.dataset.begin, about);
    showState(address);
    const done = await sendAll(files, batch);
    // what could not be sent may be the newer state of something: nothing is deleted then
    const end = await postJson(form.dataset.finish, { batch, delete: failed.length ? [] : going });
    words = tellEnd(done, going, end);
  } catch (error) {
    failed = failed.length ? failed : files;
    part("state").textContent = filled(gettext("Upload failed: %(reason)s."), { reason: error.message });
  }
  sending = false;
  finish(words);
}

// the address names the upload, so that a reload shows how far it is; the part goes on by itself until all has ended
function showState(address) {
  history.replaceState(history.state, "", address);
  return htmx.ajax("GET", address, { target: "#upload-state", swap: "outerHTML" });
}

function tellEnd(done, going, end) {
  const kept = Object.entries(end.kept).map(([doc_id, why]) => filled(gettext("%(name)s was not deleted: %(reason)s"), { name: doc_id, reason: why }));
  const words = [];
  if (done && failed.length) words.push(filled(gettext("%(files)s uploaded."), { files: filesOf(done) }));
  if (end.deleted.length) words.push(filled(gettext("%(documents)s deleted."), { documents: documentsOf(end.deleted.length) }));
  if (going.length && failed.length) words.push(gettext("Nothing was deleted, because some uploads failed."));
  return [...words, ...kept.map((line) => `${line}.`)].join(" ");
}

function finish(words) {
  part("done").hidden = !words;
  part("done").textContent = words;
  const [rest, state] = [failed, part("state").textContent];
  if (rest.length) {
    part("again").hidden = false;
    part("review").hidden = true;
    button.hidden = true;
  } else {
    clear();
    part("state").textContent = state;
  }
  htmx.trigger(document.body, "jobs-changed");
  htmx.trigger(document.body, "documents-changed");
}

function confirmDeletion(going) {
  const dialog = find("#sync-dialog");
  find("#sync-title").textContent = filled(gettext("Delete %(documents)s?"), { documents: documentsOf(going.length) });
  find("[data-words]", dialog).textContent = filled(gettext("%(documents)s missing in the folder will be deleted after the upload, with chunks, revisions and attachments. This cannot be undone."), { documents: documentsOf(going.length) });
  find("[data-deleted]", dialog).replaceChildren(...going.slice(0, 20).map((doc_id) => element("li", doc_id)), ...(going.length > 20 ? [element("li", filled(gettext("and %(count)s more"), { count: grouped(going.length - 20) }), "muted")] : []));
  find("[data-yes]", dialog).textContent = filled(gettext("Delete %(documents)s"), { documents: documentsOf(going.length) });
  dialog.showModal();
  return new Promise((resolve) => {
    const yes = find("[data-yes]", dialog);
    const agree = () => {
      dialog.close("yes");
    };
    yes.addEventListener("click", agree, { once: true });
    dialog.addEventListener("close", () => {
      yes.removeEventListener("click", agree);
      const agreed = dialog.returnValue === "yes";
      dialog.returnValue = "";
      resolve(agreed);
    }, { once: true });
  });
}

on("submit", "[data-upload]", async (_, event) => {
  if (!items.length) return; // nothing was chosen: the server says so
  event.preventDefault();
  const said = button.textContent;
  await looking; // a label that was typed last is compared yet
  const [files, going] = [toSend(), toDelete()];
  if (button.textContent !== said) return; // something else would happen than what was agreed to
  if (sending || !(files.length || going.length)) return;
  if (going.length && !(await confirmDeletion(going))) return;
  results.replaceChildren();
  await send(files, going);
});
on("click", "[data-again]", async () => {
  part("again").hidden = true;
  await send(failed, []);
});
window.addEventListener("beforeunload", (event) => {
  if (sending) event.preventDefault();
});

// --- the lines follow their jobs until these have ended
const LINES_AT_ONCE = 60;
const LOOK_EVERY_MS = 1500;
let isFollowing = false;

async function followLines(list) {
  if (isFollowing) return;
  isFollowing = true;
  for (;;) {
    const open = findAll("[data-job]", list).slice(0, LINES_AT_ONCE);
    if (!open.length) break;
    await pause(LOOK_EVERY_MS);
    const query = new URLSearchParams(open.map((line) => ["job", line.dataset.job]));
    const response = await fetch(`${list.dataset.lines}?${query}`, { headers: { "HX-Request": "true" } }).catch(() => null);
    if ([401, 404].includes(response?.status)) break; // the session has ended, or the collection is gone
    if (response?.ok) showLines(open, await response.text());
  }
  isFollowing = false;
}

function showLines(open, html) {
  const content = Object.assign(document.createElement("template"), { innerHTML: html }).content;
  const found = new Map([...content.children].map((line) => [line.id, line]));
  const changed = open.filter((line) => !found.get(line.id)?.dataset.job);
  for (const line of open) {
    if (found.has(line.id)) line.replaceWith(found.get(line.id));
    else delete line.dataset.job;
  }
  if (changed.length) htmx.trigger(document.body, "documents-changed");
}
