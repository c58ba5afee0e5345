// The public page of an assistant: the answer grows while it is written, and can be stopped. Without this file the form
// is sent as any. The thread is known to this page alone: the server hands it over encrypted with each answer.
"use strict";

(() => {
  const form = document.querySelector("form[data-public-stream]");
  const messages = document.querySelector("[data-messages]");
  const area = form.elements.query;
  const failed = form.querySelector("[data-failed]");
  const working = form.querySelector("[data-working]");
  const stop = form.querySelector("[data-stop]");
  let stopping = null; // an AbortController while an answer is read

  function setBusy(busy) {
    stop.hidden = working.hidden = !busy;
    document.querySelectorAll("button[type=submit]").forEach((button) => { button.disabled = busy; });
    if (busy) form.querySelector("[data-stage]").textContent = form.dataset.searching;
  }

  function fail(text, question) {
    failed.querySelector("[data-why]").textContent = text;
    failed.hidden = false;
    if (!area.value) area.value = question;
    area.focus();
  }

  function offerCopy(message) {
    const button = message.querySelector("[data-copy-answer]");
    const answer = message.querySelector(".answer");
    if (!button || !answer || !navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(answer.innerText);
      button.querySelector("use").setAttribute("href", "#i-check");
      setTimeout(() => button.querySelector("use").setAttribute("href", "#i-copy"), 1500);
    });
  }

  // a message that is retried goes, with those after it; the thread goes on from what was before
  function goBack(message) {
    form.elements.thread.value = message.dataset.thread ?? "";
    while (message.nextElementSibling) message.nextElementSibling.remove();
    message.remove();
  }

  function end(message, html) {
    const [whole] = [...parseNodes(html)].filter((node) => node.nodeType === Node.ELEMENT_NODE);
    whole.dataset.thread = message.dataset.thread;
    message.replaceWith(whole);
    offerCopy(whole);
  }

  async function ask(question, body, retried, signal) {
    const response = await fetch(form.dataset.publicStream, { method: "POST", body, signal });
    if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      const { problem } = response.headers.get("Content-Type")?.startsWith("application/json") ? await response.json() : {};
      return fail(problem ?? form.dataset.broken, question);
    }
    let message = null;
    for await (const [name, data] of eventsOf(response)) {
      if (name === "stage") form.querySelector("[data-stage]").textContent = data.text;
      else if (name === "search_results") {
        if (retried) goBack(retried);
        messages.querySelector("[data-greeting]")?.remove();
        form.querySelector(".starters")?.remove();
        [message] = [...parseNodes(data.html)].filter((node) => node.nodeType === Node.ELEMENT_NODE);
        message.dataset.thread = form.elements.thread.value;
        const asked = document.createElement("div");
        asked.className = "asked";
        asked.append(Object.assign(document.createElement("p"), { className: "question", textContent: question }));
        message.prepend(asked);
        messages.append(message);
        message.scrollIntoView({ block: "start" });
        form.elements.thread.value = data.thread;
        area.value = "";
        working.hidden = true; // the message says what is done now
      } else if (name === "answer") message.querySelector("[data-growing]").replaceChildren(...parseNodes(data.html));
      else if (name === "final") {
        form.elements.thread.value = data.thread;
        return end(message, data.html);
      } else if (name === "error") {
        if (message) goBack(message);
        return fail(data.problem, question);
      }
    }
    if (message) goBack(message);
    return fail(form.dataset.broken, question);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (stopping) return;
    const retried = event.submitter?.closest("[data-retry]")?.closest(".message");
    const question = (event.submitter?.name === "starter" ? event.submitter.value : area.value).trim();
    if (!question) return;
    failed.hidden = true;
    const body = new FormData(form);
    body.set("starter", question);
    if (retried) body.set("thread", retried.dataset.thread ?? "");
    stopping = new AbortController();
    setBusy(true);
    try {
      await ask(question, body, retried, stopping.signal);
    } catch (error) {
      const growing = messages.querySelector("[data-answering]");
      if (error.name === "AbortError" && growing) growing.append(Object.assign(document.createElement("p"), { className: "small watch", textContent: form.dataset.stopped }));
      else if (error.name !== "AbortError") fail(form.dataset.broken, question);
    } finally {
      stopping = null;
      setBusy(false);
      messages.querySelectorAll("[data-answering]").forEach((message) => {
        delete message.dataset.answering;
        message.querySelector("[data-writing]")?.remove();
        message.querySelector("[data-growing]")?.removeAttribute("aria-busy");
      });
    }
  });

  stop.addEventListener("click", () => stopping?.abort());

  // Enter asks; with Shift, or while a character is being composed, it does not
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (!stopping) form.requestSubmit();
  });

  document.querySelectorAll(".message").forEach(offerCopy);
})();
