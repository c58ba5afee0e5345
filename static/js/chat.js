// The Chat page: the answer grows while it is written, and can be stopped. Without this file the form is sent as any.
"use strict";

(() => {
  const broken = () => gettext("Connection lost. The answer is kept in the thread: reload the page in a moment.");
  const HEADERS = { Accept: "text/event-stream", "HX-Request": "true", "HX-Target": "chat" };
  let answering = null; // while an answer is read: {href of the thread, stop: where it is ended, isStopping}
  let adding = null; // settles when the files that were added last have arrived

  // the thread as it stands; what was typed meanwhile stays
  async function show(href) {
    let typed = "";
    const keep = (event) => { if (event.detail.target.id === "chat") typed = find("#composer textarea")?.value ?? ""; };
    document.addEventListener("htmx:beforeSwap", keep);
    await htmx.ajax("GET", href, { target: "#chat", swap: "outerHTML" }).finally(() => document.removeEventListener("htmx:beforeSwap", keep));
    const area = find("#composer textarea");
    if (!area) return;
    if (typed) area.value = typed;
    area.focus({ preventScroll: true });
  }

  // the message takes the place of the one that it replaces, and of those after it
  function begin(chat, form, html, submitter) {
    const replaced = ["retry", "literal", "repair"].includes(submitter?.name) ? submitter.value : form.elements.edit?.value;
    const first = replaced && find(`#message-${replaced}`, chat);
    if (first) while (first.nextElementSibling) first.nextElementSibling.remove();
    first?.remove();
    const messages = find("[data-messages]", chat);
    chat.classList.remove("fresh");
    if (!find(".message", messages)) messages.replaceChildren();
    messages.append(...parseNodes(html));
    htmx.process(messages);
    find("[data-answering]", messages).scrollIntoView({ block: "start" });
    find("textarea", form).value = "";
    find("[data-failed]", form).hidden = true;
    return findAll("[data-growing]", messages);
  }

  function fail(form, message) {
    const banner = find("[data-failed]", form);
    find("[data-why]", banner).textContent = message;
    banner.hidden = false;
  }

  async function stop() {
    const token = find("[name=csrfmiddlewaretoken]").value;
    const response = await fetch(answering.stop, { method: "POST", headers: { "X-CSRFToken": token, "HX-Request": "true" } }).catch(() => null);
    if (!response?.ok) say(gettext("The server is not responding. Try again in a moment."));
  }

  // the thread has its address and its place in the rail from now on, so that a reload comes back to it
  const enter = (href) => htmx.ajax("GET", href, { target: "#threads", swap: "none" });

  async function read(chat, form, response, submitter, place) {
    let growing = null;
    const early = [];
    for await (const [name, data] of eventsOf(response)) {
      if (name === "search_results") {
        Object.assign(place, { href: data.href, stop: data.stop });
        find("[data-stage]", form).textContent = "";
        growing = begin(chat, form, data.html, submitter);
        growing.forEach((box, column) => box.replaceChildren(...parseNodes(early[column] ?? "")));
        findAll("#add-files [name=thread]").forEach((field) => { field.value = data.href.split("/")[2]; }); // dropped from now on
        place.entered = enter(data.href).catch(() => null);
        if (place.isStopping) stop();
      } else if (name === "answer") {
        early[data.column ?? 0] = data.html; // the second answer may begin before the results of the first are there
        growing?.[data.column ?? 0].replaceChildren(...parseNodes(data.html));
      }
      else if (name === "stage") find("[data-stage]", form).textContent = data.text;
      else if (name === "final" || place.href && name === "error") {
        await place.entered;
        return data.href && show(data.href);
      } else if (name === "error") return fail(form, data.error.message);
    }
    return fail(form, broken());
  }

  function setBusy(chat, busy) {
    if (busy) chat.dataset.streaming = "";
    else delete chat.dataset.streaming;
    findAll("button[type=submit]", chat).forEach((button) => { button.disabled = busy; });
    findAll("[data-stop]", chat).forEach((button) => { [button.hidden, button.disabled] = [!busy, false]; });
    if (busy) return;
    find("[data-writing]", chat)?.remove();
    find("[aria-busy]", chat)?.removeAttribute("aria-busy");
  }

  // the server ends the answer, also for whoever reads it elsewhere; before there are results it does so when they come
  on("click", "[data-stop]", (button) => {
    if (!answering || answering.isStopping) return;
    answering.isStopping = true;
    button.disabled = true;
    find("[data-stage]", button.form).textContent = gettext("Stopping…");
    if (answering.stop) stop();
  });

  document.addEventListener("htmx:confirm", async (event) => {
    const form = event.detail.elt;
    const submitter = event.detail.triggeringEvent?.submitter;
    if (!form.matches?.("form[data-stream]") || submitter?.value === "search") return;
    event.preventDefault();
    if (answering) return;
    const chat = form.closest("#chat");
    const place = { href: "", stop: "", isStopping: false };
    answering = place;
    await adding; // then the question asks where they went
    const body = new FormData(form, submitter);
    setBusy(chat, true);
    find("[data-stage]", form).textContent = gettext("Searching…");
    try {
      const response = await fetch(form.dataset.stream, { method: "POST", body, headers: HEADERS });
      const streams = response.ok && response.headers.get("Content-Type")?.startsWith("text/event-stream");
      if (streams) await read(chat, form, response, submitter, place);
      else if (!goToLogin(response)) {
        const html = response.ok ? "" : await response.text();
        setBusy(chat, false);
        if (response.headers.get("Ragd-Part") === "chat") htmx.swap(chat, html, { swapStyle: "outerHTML" });
        else event.detail.issueRequest(true); // the page itself says what is wrong, or answers all at once
      }
    } catch {
      fail(form, place.href ? broken() : gettext("The server is not responding. Try again in a moment."));
    } finally {
      answering = null;
      setBusy(chat, false);
    }
  });

  // Enter asks; with Shift, or while a character is being composed, it does not
  on("keydown", "#composer textarea", (area, event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (!answering) area.form.requestSubmit();
  });

  // a collection's name chooses it alone, with Enter on its box too; the box itself adds it
  const chooseAlone = (box, event) => {
    event.preventDefault();
    findAll("[name=collection]", box.form).forEach((each) => { each.checked = each === box; });
    box.dispatchEvent(new Event("change", { bubbles: true }));
    const menu = box.closest("details");
    menu.open = false;
    find("summary", menu).focus();
  };
  on("click", ".collections-menu label", (label, event) => {
    if (event.target !== label.control) chooseAlone(label.control, event);
  });
  on("keydown", ".collections-menu [name=collection]", (box, event) => {
    if (event.key === "Enter") chooseAlone(box, event);
  });

  on("change", "#composer [name=collection]", (box) => {
    const chosen = findAll("[name=collection]:checked", box.form).map((each) => each.labels[0].textContent.trim()).join(", ");
    find("[data-chosen]", box.form).textContent = chosen || gettext("Choose a collection");
    box.closest("fieldset").dataset.stated = ""; // files go where a person chose, not where a page began
  });

  on("change", ".models-menu select", (select) => {
    const names = findAll(".models-menu select", select.form).map((each) => each.value && each.selectedOptions[0].textContent);
    find("[data-models]", select.form).textContent = [names[0] || gettext("Default"), ...names.slice(1).filter(Boolean)].join(" | ");
  });

  // files dropped anywhere on a page that takes them are added as if they had been chosen
  const taking = (event) => event.dataTransfer?.types.includes("Files") && find("#id_uploads");
  const mark = (dropping) => find("#chat")?.toggleAttribute("data-dropping", dropping);
  for (const type of ["dragenter", "dragover"]) {
    document.addEventListener(type, (event) => {
      if (!taking(event)) return;
      event.preventDefault();
      mark(true);
    });
  }
  document.addEventListener("dragleave", (event) => event.relatedTarget || mark(false));
  document.addEventListener("drop", (event) => {
    const input = taking(event);
    mark(false);
    if (!input) return;
    event.preventDefault();
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.id !== "add-files") return;
    find("#composer [data-stage]").textContent = gettext("Uploading");
    adding = new Promise((resolve) => { event.detail.elt.addEventListener("htmx:afterRequest", resolve, { once: true }); });
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt.id !== "add-files") return;
    event.detail.elt.reset(); // the same file may be chosen again
    find("#composer textarea").focus({ preventScroll: true });
  });

  // the switch for details holds on every thread of this browser
  const showDetails = (shown) => {
    document.documentElement.toggleAttribute("data-details-shown", shown);
    findAll("[data-details]").forEach((box) => { box.checked = shown; });
  };
  const recall = () => showDetails(localStorage.getItem("chat-details") === "on");
  on("change", "[data-details]", (box) => {
    localStorage.setItem("chat-details", box.checked ? "on" : "off");
    showDetails(box.checked);
  });
  document.addEventListener("htmx:load", recall);
  recall();
})();
