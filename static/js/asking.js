// The Ask page: the answer grows while it is written. Without this file the form is sent as any other.
"use strict";

(() => {
  const BROKEN = "Connection lost. The answer is saved: see the query runs in a moment.";

  const HEADERS = { Accept: "text/event-stream", "HX-Request": "true", "HX-Target": "ask" };

  async function* eventsOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let waiting = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (waiting + value).split("\n\n");
      waiting = blocks.pop();
      for (const block of blocks) {
        const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? [];
        if (name) yield [name, JSON.parse(data)];
      }
    }
  }

  const parse = (html) => document.importNode(new DOMParser().parseFromString(html, "text/html").body, true).childNodes;

  function showSources(ask, html) {
    findAll(".result", ask).forEach((old) => old.remove());
    ask.append(...parse(html));
    htmx.process(find("[data-answering]", ask));
  }

  // the marker, such as [1], is the end of what was written last
  function cite(growing, html) {
    const last = growing.lastChild;
    if (last?.nodeType === Node.TEXT_NODE) last.data = last.data.replace(/\[\d+\]$/, "");
    growing.append(...parse(html));
  }

  function write(growing, text) {
    if (growing.lastChild?.nodeType === Node.TEXT_NODE) growing.lastChild.appendData(text);
    else growing.append(text);
  }

  function fail(ask, message) {
    const banner = find("[data-failed]", ask);
    find("[data-why]", banner).textContent = message;
    banner.hidden = false;
  }

  async function read(ask, response) {
    let growing = null;
    for await (const [name, data] of eventsOf(response)) {
      if (name === "search_results") {
        showSources(ask, data.html);
        growing = find("[data-growing]", ask);
      } else if (name === "token") write(growing, data.text);
      else if (name === "citation") cite(growing, data.html);
      else if (name === "error") return fail(ask, data.error.message);
      else if (name === "final") return data.href && htmx.ajax("GET", data.href, { target: "#ask", swap: "outerHTML" });
    }
    return fail(ask, BROKEN);
  }

  function setBusy(ask, busy) {
    if (busy) ask.dataset.streaming = "";
    else delete ask.dataset.streaming;
    findAll("form button", ask).forEach((button) => { button.disabled = busy; });
    if (busy) return;
    find("[data-writing]", ask)?.remove();
    find("[aria-busy]", ask)?.removeAttribute("aria-busy");
  }

  document.addEventListener("htmx:confirm", async (event) => {
    const form = event.detail.elt;
    const button = event.detail.triggeringEvent?.submitter;
    if (!form.matches?.("form[data-stream]") || button?.value === "search") return;
    event.preventDefault();
    const ask = form.closest("#ask");
    const body = new FormData(form);
    setBusy(ask, true);
    try {
      const response = await fetch(form.dataset.stream, { method: "POST", body, headers: HEADERS });
      const streams = response.ok && response.headers.get("Content-Type")?.startsWith("text/event-stream");
      if (streams) await read(ask, response);
      else if (!goToLogin(response)) {
        const html = response.ok ? "" : await response.text();
        setBusy(ask, false);
        if (response.headers.get("Ragd-Part") === "ask") htmx.swap(ask, html, { swapStyle: "outerHTML" });
        else event.detail.issueRequest(true); // the page itself says what is wrong, or answers all at once
      }
    } catch {
      if (find("[data-failed]", ask)) fail(ask, BROKEN);
      else say(gettext("The server is not responding. Try again in a moment."));
    } finally {
      setBusy(ask, false);
    }
  });
})();
