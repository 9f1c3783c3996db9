"use strict";
// All of this is comfort: without it the page says the same.
const compare = (a, b) => {
  const [x, y] = [a, b].map((value) => (Array.isArray(value) ? value[0] : value));
  if (x === null || y === null) return (x === null) - (y === null);
  return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
};

const makeSortable = (heading) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => {
    const body = heading.closest("table").tBodies[0];
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => JSON.parse(row.cells[heading.cellIndex].dataset.value);
    const rows = [...body.rows].sort((a, b) => compare(value(a), value(b)));
    body.append(...(down ? rows.reverse() : rows));
  });
};

const makeCopied = (block) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  block.prepend(button);
  button.addEventListener("click", async () => {
    const code = block.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
  });
};

const makeLegend = (button) => {
  button.addEventListener("click", () => {
    const figures = button.closest(".figures");
    const alone = button.getAttribute("aria-pressed") !== "true";
    for (const other of figures.querySelectorAll(".legend button")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(alone));
    for (const mark of figures.querySelectorAll("figure [stroke^='var(--series'], figure [fill^='var(--series']")) {
      const own = [mark.getAttribute("stroke"), mark.getAttribute("fill")].includes(button.dataset.series);
      mark.classList.toggle("faded", alone && !own);
    }
  });
};

const enhance = (part) => {
  part.querySelectorAll("thead th").forEach(makeSortable);
  part.querySelectorAll(".copied").forEach(makeCopied);
  part.querySelectorAll(".legend button").forEach(makeLegend);
  pictures(part);
};

const open = () => {
  const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!place) return;
  for (let each = place; each; each = each.parentElement?.closest("details")) {
    if (each instanceof HTMLDetailsElement) each.open = true;
  }
  place.scrollIntoView();
  place.querySelector(":scope > summary")?.focus({ preventScroll: true });
};
enhance(document);
addEventListener("hashchange", open);
open();
