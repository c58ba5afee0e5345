// A link opens the page that it leads to: data-dialog its #confirm in a dialog, data-drawer its #detail in the panel, under
// that page's address; data-evidence its #detail beside the page, under the page's own address with #evidence=/of/the/link/.
// The arrow keys go between the links whose data-evidence has the same value. data-within: followed in the panel, if it is there.
"use strict";

async function fillPart(box, href, part, leave = (to) => location.assign(to)) {
  box.dataset.href = href;
  let content = null;
  let shown = href;
  try {
    const response = await fetch(href, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    content = response.ok ? find(part, page) : null;
    if (response.redirected) shown = response.url;
  } catch {
    // the page itself says why it cannot be read
  }
  if (box.dataset.href !== href) return false; // another one was opened meanwhile
  if (!content) {
    leave(href);
    return false;
  }
  box.replaceChildren(document.importNode(content, true));
  htmx.process(box);
  showTimes(box);
  return shown;
}

async function openPage(dialog, href, part) {
  if (!(await fillPart(find(".dialog-body", dialog), href, part))) return false;
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  const hash = new URL(href, location).hash;
  const place = hash ? find(hash, dialog) : null;
  const field = place ? find("input:not([type=hidden]), textarea, select", place) : null;
  field?.focus({ preventScroll: true });
  (field ?? place)?.scrollIntoView({ block: "center" });
  return true;
}

on("click", "a[data-dialog]", (link, event) => {
  if (!isPlainClick(event)) return;
  event.preventDefault();
  openPage(find("#dialog"), link.href, "#confirm");
});

on("click", "[data-close]", (button) => button.closest("dialog").close());
on("click", "dialog", (dialog, event) => {
  if (event.target === dialog && dialog.matches(":modal")) dialog.close();
});

(() => {
  const panel = find("#drawer");
  if (!panel) return;
  const isWide = matchMedia("(min-width: 1100px)");
  const isBeside = () => "evidence" in panel.dataset;
  let from = null; // the link of the page that the evidence was opened by
  let leaving = false;

  const pathOf = (href) => {
    const { pathname, search, hash } = new URL(href, location);
    return pathname + search + hash;
  };
  const placeOf = (path) => `#${new URLSearchParams({ evidence: path })}`;
  // what the address of the page names, "" for what is not on this server
  function named() {
    const path = new URLSearchParams(location.hash.slice(1)).get("evidence") ?? "";
    return path && URL.canParse(path, location) && new URL(path, location).origin === location.origin ? path : "";
  }
  const stops = () => findAll("main a[data-evidence]").filter((link) => link.checkVisibility() && link.dataset.evidence === from?.dataset.evidence);

  function showNeighbours() {
    find(".run-walk", panel)?.remove();
    findAll("main a[data-evidence]").forEach((link) => link.removeAttribute("aria-current"));
    from?.setAttribute("aria-current", "true");
    const links = stops();
    const at = links.indexOf(from);
    if (at < 0 || links.length < 2) return;
    const nav = find("#walk-form").content.cloneNode(true).firstElementChild;
    nav.setAttribute("aria-label", gettext("Evidence"));
    for (const [rel, link] of [["prev", links[at - 1]], ["next", links[at + 1]]]) {
      const button = find(`[data-walk=${rel}]`, nav);
      if (!link) {
        button.remove();
        continue;
      }
      button.href = link.href;
      button.addEventListener("click", (event) => {
        if (!isPlainClick(event)) return;
        event.preventDefault();
        step(rel === "next" ? 1 : -1);
      });
    }
    find("[data-place]", nav).textContent = filled(gettext("%(place)s of %(total)s"), { place: at + 1, total: links.length });
    find(".drawer-close", panel).prepend(nav);
  }

  // returns the path that is shown, which another may lead to
  async function showBeside(href, leave) {
    const shown = await fillPart(find(".dialog-body", panel), href, "#detail", leave);
    if (!shown) return "";
    const path = pathOf(shown);
    panel.dataset.evidence = "";
    const link = findAll("main a[data-evidence]").find((each) => pathOf(each.href) === path);
    if (link && pathOf(from?.href ?? "") !== path) from = link;
    document.body.toggleAttribute("data-beside", isWide.matches);
    if (!panel.open) {
      if (isWide.matches) panel.show();
      else panel.showModal();
    }
    panel.scrollTop = 0;
    (find("mark, .frame:not(.passage)", panel) ?? find("#cited, .frame", panel))?.scrollIntoView({ block: "center" });
    showNeighbours();
    return path;
  }

  // a step within the panel can be taken back; closing it takes all of them back. drawer: how many there were
  const depth = () => history.state?.drawer ?? 0;
  async function open(href, isStep) {
    const takesPlace = panel.open && !isStep;
    const path = await showBeside(pathOf(href));
    if (!path) return;
    if (takesPlace) history.replaceState(history.state, "", placeOf(path));
    else history.pushState({ drawer: depth() + 1 }, "", placeOf(path));
  }

  async function step(by) {
    const links = stops();
    const next = links[links.indexOf(from) + by];
    if (!next) return;
    from = next;
    next.scrollIntoView({ block: "nearest" });
    await open(next.href);
  }

  on("click", "a[data-evidence], a[data-drawer], #drawer a[data-within]", async (link, event) => {
    if (!isPlainClick(event)) return;
    const isInside = panel.contains(link);
    if (isInside ? isBeside() : "evidence" in link.dataset) {
      event.preventDefault();
      if (!isInside) from = link;
      open(link.href, isInside);
      return;
    }
    if (!("drawer" in link.dataset)) return;
    event.preventDefault();
    const pane = find("[data-pane]", link.closest("[data-split]") ?? document.createElement("div"));
    if (pane?.offsetParent) { // a wide screen has room for the span beside its trace; its address goes with the page's
      const span = new URL(link.href).searchParams.get("span_id");
      findAll(".wf-row").forEach((row) => row.classList.toggle("chosen", row.dataset.span === span));
      if (!(await fillPart(pane, link.href, "#detail"))) return;
      pane.scrollTop = 0;
      const shown = new URL(location);
      shown.searchParams.set("span", span);
      history.replaceState(history.state, "", shown);
      return;
    }
    if (isBeside()) panel.close(); // one of the page's own takes its place
    const alreadyOpen = panel.open;
    if (!(await openPage(panel, link.href, "#detail"))) return;
    panel.dispatchEvent(new CustomEvent("drawer-filled", { bubbles: true, detail: link.href }));
    if (alreadyOpen) history.replaceState({ drawer: 1 }, "", link.href);
    else history.pushState({ drawer: 1 }, "", link.href);
  });

  // a place within the evidence: to follow it would take the evidence out of the address
  on("click", "#drawer a[href^='#']", (link, event) => {
    const place = isBeside() && isPlainClick(event) && find(`#${CSS.escape(link.hash.slice(1))}`, panel);
    if (!place) return;
    event.preventDefault();
    place.closest("details:not([open])")?.setAttribute("open", "");
    place.scrollIntoView({ block: "center" });
  });

  panel.addEventListener("close", () => {
    const wasBeside = isBeside();
    delete panel.dataset.evidence;
    document.body.removeAttribute("data-beside");
    find(".dialog-body", panel).dataset.href = "";
    if (wasBeside) {
      find(".dialog-body", panel).replaceChildren(); // what it holds has names that the page may have too
      from?.focus({ preventScroll: true });
      from?.removeAttribute("aria-current");
      from = null;
    }
    if (depth()) {
      leaving = true;
      history.go(-depth());
    } else if (named()) history.replaceState(history.state, "", here());
  });

  window.addEventListener("popstate", (event) => {
    const path = named();
    if (!leaving && !panel.open && (!path || event.state?.htmx)) return;
    event.stopImmediatePropagation(); // the page below is still the right one
    if (path && leaving) history.replaceState(null, "", here()); // it was opened by its address
    else if (path) showBeside(path);
    else panel.close();
    leaving = false;
  });

  document.addEventListener("keydown", (event) => {
    if (!isBeside() || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.key === "Escape" && !find("dialog:modal, [popover]:popover-open, details[data-menu][open]")) panel.close();
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.target.closest("input, textarea, select, [contenteditable], .scroll, .page-scroll")) return;
    event.preventDefault();
    step(by);
  });

  // the answer is complete: what was cited while it was written leads to the evidence of its run
  document.addEventListener("htmx:afterSettle", async (event) => {
    if (!isBeside() || !named().startsWith("/chat/") || !find("a[data-evidence]", event.target)) return;
    const path = await showBeside(named());
    if (path) history.replaceState(history.state, "", placeOf(path));
  });

  // reloaded, or opened by an address that was passed on
  document.addEventListener("DOMContentLoaded", () => {
    const path = named();
    if (path) showBeside(path, () => {
      history.replaceState(null, "", here());
      say(gettext("This evidence is not there any more, or you may not read it."));
    });
  });
})();
