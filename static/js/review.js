// One answer to judge by keyboard. Without this file the form works by Tab and arrow keys as any other.
"use strict";

(() => {
  const page = document.querySelector("[data-review]");
  const form = document.querySelector("#review-form");
  if (!page || !form) return;
  const groups = [...form.querySelectorAll("[data-verdict]")];
  const isAnswered = (group) => group.querySelector("input:checked") !== null;
  let current = Math.max(0, groups.findIndex((group) => !isAnswered(group)));

  function show(place) {
    current = Math.min(Math.max(place, 0), groups.length - 1);
    groups.forEach((group, at) => group.classList.toggle("current", at === current));
    groups[current].scrollIntoView({ block: "nearest" });
  }

  function choose(number) {
    const options = [...groups[current].querySelectorAll("input")];
    const option = number === 0 ? options.at(-1) : options.slice(0, -1)[number - 1];
    if (!option) return;
    option.checked = true;
    const next = groups.findIndex((group, at) => at > current && !isAnswered(group));
    show(next < 0 ? current : next);
  }

  form.addEventListener("change", (event) => {
    const group = event.target.closest("[data-verdict]");
    if (group) show(groups.indexOf(group));
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key.length === 1 && !hasLetters()) return;
    const typing = event.target.closest("textarea, select, input[type='search'], input[type='text']");
    if (typing) return;
    const sentence = page.querySelector(`[data-sentence="${CSS.escape(event.key)}"]`);
    if (/^[0-9]$/.test(event.key)) choose(Number(event.key));
    else if (event.key === "ArrowDown" && event.target.type !== "radio") show(current + 1);
    else if (event.key === "ArrowUp" && event.target.type !== "radio") show(current - 1);
    else if (event.key === "Enter" && !event.target.closest("a, button, summary")) form.requestSubmit();
    else if (event.key === ".") document.querySelector("[data-review-skip]").click();
    else if (sentence) sentence.click();
    else return;
    event.preventDefault();
  });

  show(current);
})();
