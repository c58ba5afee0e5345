// From an object to its neighbours in the list that it was opened from, and back to that list as it was filtered.
// This tab remembers the list. Pages whose server knows the neighbours show their own.
"use strict";

const ROWS = "main :is([data-row], .table > tbody > tr)";
const rowLink = (row) => find("[data-row-link]", row) ?? find(":is(th, td.wide, h3) a[href]", row) ?? find("[data-select]", row);

(() => {
  const KEPT = "ragd-list";
  const OWN = "[data-key=j], [data-key=k]"; // what a page has whose server knows the neighbours
  const OF_A_ROW = ["pk", "position", "number", "question_id", "span_id"]; // what tells the things of one path apart
  function pathOf(address) {
    const { pathname, searchParams } = new URL(address, location);
    return [pathname, ...OF_A_ROW.map((name) => searchParams.get(name))].join(" ");
  }
  const boxOf = (row) => row.closest("table, ul, ol") ?? row.parentElement;
  const boxesOf = (page) => [...new Set(findAll(ROWS, page).map(boxOf))];

  // a list of a page: its address, its place among the lists of the page, the addresses and names of its rows in order,
  // and the pages before and after it
  function describe(page, address, at) {
    const box = boxesOf(page)[at];
    const links = findAll(ROWS, page).filter((row) => boxOf(row) === box).map(rowLink);
    const beside = (rel) => find(`main .pager [rel=${rel}]`, page)?.getAttribute("href");
    const whole = (href) => {
      const { pathname, search } = new URL(href ?? "", new URL(address, location));
      return href && pathname + search;
    };
    return {
      address: whole(address), at, before: whole(beside("prev")), after: whole(beside("next")),
      rows: links.filter((link) => link?.matches("a")).map((link) => [link.getAttribute("href"), link.textContent.trim()]),
    };
  }
  const keep = (list) => sessionStorage.setItem(KEPT, JSON.stringify(list));
  const kept = () => JSON.parse(sessionStorage.getItem(KEPT) ?? "null");

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("main a[href]");
    const row = link?.closest(ROWS);
    if (row && rowLink(row) === link) keep(describe(document, here(), boxesOf(document).indexOf(boxOf(row))));
  }, true);

  // beyond the end of a page: the first row of the next one, or the last one of the page before
  async function turn(link, address, isForward) {
    const response = await fetch(address, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const list = describe(page, address, kept().at);
    const row = list.rows.at(isForward ? 0 : -1);
    if (row) keep(list);
    delete link.dataset.turn;
    link.href = row?.[0] ?? address;
    link.click();
  }
  on("click", "[data-turn]", (link, event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    turn(link, link.href, link.rel === "next").catch(() => location.assign(link.href));
  });

  function walk(address, drawer) {
    const list = kept();
    const at = list?.rows.findIndex(([href]) => pathOf(href) === pathOf(address)) ?? -1;
    if (at < 0) return null;
    const nav = find("#walk-form").content.cloneNode(true).firstElementChild;
    for (const [rel, neighbour, beyond] of [["prev", list.rows[at - 1], list.before], ["next", list.rows[at + 1], list.after]]) {
      const link = find(`[data-walk=${rel}]`, nav);
      link.rel = rel;
      if (!neighbour && !beyond) link.remove();
      else [link.href, link.title] = neighbour ?? [beyond, ""];
      link.toggleAttribute("data-turn", !neighbour);
      link.toggleAttribute("data-drawer", drawer);
    }
    const place = list.before || list.after ? "" : gettext("%(place)s of %(total)s");
    find("[data-place]", nav).textContent = filled(place, { place: at + 1, total: list.rows.length });
    return nav;
  }

  document.addEventListener("drawer-filled", ({ target: drawer, detail: address }) => {
    find(".run-walk", drawer)?.remove();
    const nav = find(OWN, drawer) ? null : walk(address, true);
    if (nav) find(".drawer-close", drawer).prepend(nav);
  });

  const list = kept();
  if (!list) return;
  const cameFrom = document.referrer && pathOf(document.referrer);
  if (list.address === here() && performance.getEntriesByType("navigation")[0]?.type === "navigate") {
    const link = findAll(ROWS).map(rowLink).find((each) => each?.href && pathOf(each.href) === cameFrom);
    link?.focus({ preventScroll: true });
    link?.scrollIntoView({ block: "center" });
  }
  const nav = find(OWN) ? null : walk(here(), false);
  if (nav) find(".top .tools")?.before(nav);
  if (list.rows.some(([href]) => pathOf(href) === pathOf(location))) {
    findAll(".crumbs a").filter((link) => pathOf(link.href) === pathOf(list.address)).forEach((link) => { link.href = list.address; });
  }
})();
