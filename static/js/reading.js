// A document beside its chunks: a click on either brings the other into view, and the arrow keys go from chunk to chunk.
"use strict";

(() => {
  const reader = document.querySelector(".reader");
  if (!reader) return;
  const [textPane, chunkPane] = reader.querySelectorAll(".pane");
  const cards = [...chunkPane.querySelectorAll(".chunk")];

  function bringIntoView(pane, element) {
    const scrolls = pane.scrollHeight > pane.clientHeight;
    if (!scrolls) return element.scrollIntoView({ block: "nearest" });
    const away = element.getBoundingClientRect().top - pane.getBoundingClientRect().top;
    if (away < 0 || away > pane.clientHeight - 60) pane.scrollTop += away - pane.clientHeight / 4;
  }

  // what is chosen stays marked until another chunk is
  function choose(index) {
    for (const element of reader.querySelectorAll("[data-chunks]")) {
      element.classList.toggle("chosen", element.dataset.chunks.split(" ").includes(index));
    }
    for (const card of cards) {
      if (card.dataset.chunks === index) card.setAttribute("aria-current", "true");
      else card.removeAttribute("aria-current");
    }
  }

  // the cited place on a page
  const frame = chunkPane.querySelector(".frame:not(.passage)") ?? chunkPane.querySelector(".frame");
  if (frame) {
    const place = () => bringIntoView(chunkPane, frame);
    const picture = chunkPane.querySelector("img");
    if (!picture || picture.complete) place();
    else picture.addEventListener("load", place, { once: true });
  }

  // a page that was turned to stays in view where it stands below its text
  const isBelow = chunkPane.getBoundingClientRect().top >= textPane.getBoundingClientRect().bottom;
  if (location.hash === "#page-text" && isBelow) chunkPane.scrollIntoView();

  textPane.addEventListener("click", (event) => {
    const piece = event.target.closest("[data-chunks]");
    const index = piece?.dataset.chunks.split(" ").filter(Boolean).at(-1);
    if (!index || !document.getSelection().isCollapsed) return;
    const card = document.getElementById(`chunk-${index}`);
    if (!card) return;
    event.preventDefault();
    choose(index);
    bringIntoView(chunkPane, card);
    if (piece.matches("a")) card.focus({ preventScroll: true });
  });

  function showInText(card) {
    const index = card.dataset.chunks;
    choose(index);
    const edge = document.getElementById(`text-${index}`) ?? textPane.querySelector(`[data-chunks~="${index}"]`);
    if (edge) bringIntoView(textPane, edge);
  }
  chunkPane.addEventListener("click", (event) => {
    const card = event.target.closest(".chunk");
    const control = event.target.closest("a, button, input, textarea, summary, form");
    if (!card || (control && !control.matches("[data-jump]"))) return;
    event.preventDefault();
    showInText(card);
    card.focus({ preventScroll: true });
  });

  chunkPane.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select")) return;
    const at = cards.indexOf(event.target.closest(".chunk"));
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) {
      if (event.key === "Enter" && at >= 0 && event.target === cards[at]) showInText(cards[at]);
      return;
    }
    const next = cards[at < 0 ? 0 : at + step];
    if (!next) return;
    event.preventDefault();
    next.focus({ preventScroll: true });
    bringIntoView(chunkPane, next);
    showInText(next);
  });
})();
