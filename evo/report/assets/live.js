"use strict";
// A page of `evo ui`: it asks how the run is, and takes over what has changed without moving what the reader sees.
const POLL_MS = 2000;
const SOON_MS = 250; // while there is nothing to read yet
const bar = document.querySelector(".live");
const [told, age, pause] = [".told", ".age", "button"].map((name) => bar.querySelector(name));
const plain = (text) => text.replace(/\d[\d.,]*/g, "N").trim(); // figures change, what is told about does not
const label = (each) => {
  const name = "summary, caption, figcaption, h2, h3";
  return plain((each.matches(name) ? each : each.querySelector(name))?.textContent ?? "");
};

// --- parts of the page: header, contents, footer, and whatever stands right below a section --------------------------

const parts = (root) => [...root.querySelectorAll("body > header, body > nav, body > footer, main > section > *")];
const keyed = (found, keyOf) => {
  const times = new Map();
  const keys = new Map();
  for (const each of found) {
    const key = keyOf(each);
    times.set(key, (times.get(key) ?? 0) + 1);
    keys.set(`${key} ${times.get(key)}`, each);
  }
  return keys;
};
const section = (part) => part.closest("section")?.getAttribute("aria-labelledby") ?? "";
const partKey = (part) => `${section(part)} ${part.tagName} ${part.className} ${part.id || label(part)}`;
const origin = new WeakMap(); // each part as the server sent it
for (const part of parts(document)) origin.set(part, part.outerHTML);

// --- what a reader did to a part -------------------------------------------------------------------------------------

const foldKey = (fold) => fold.id || `${fold.className} ${label(fold)}`;
const controlKey = (each) => `${each.tagName} ${each.hash ?? ""} ${plain(each.textContent)}`;
const folds = (part) => [...(part.matches("details") ? [part] : []), ...part.querySelectorAll("details")];
const controls = (part) => [...part.querySelectorAll("a, button, summary, [tabindex]")];
const opened = (id) => (id ? document.querySelector(`details[open]#${CSS.escape(id)}`) : null);
const keep = (old, made) => {
  const known = keyed(folds(old), foldKey);
  for (const [key, fold] of keyed(folds(made), foldKey)) {
    const elsewhere = known.has(key) ? null : opened(fold.id); // a kernel that is told about at another place now
    fold.open = known.get(key)?.open ?? (fold.open || Boolean(elsewhere));
    if (!elsewhere) continue;
    keep(elsewhere, fold);
    for (const outer of folds(made)) outer.open ||= outer.contains(fold);
  }
  const sorted = keyed(old.querySelectorAll("th[aria-sort]"), controlKey);
  for (const [key, heading] of keyed(made.querySelectorAll("thead th"), controlKey)) {
    const way = sorted.get(key)?.getAttribute("aria-sort");
    if (way) heading.querySelector("button").click();
    if (way === "descending") heading.querySelector("button").click();
  }
  const pressed = keyed(old.querySelectorAll(".legend [aria-pressed=true]"), controlKey);
  for (const [key, button] of keyed(made.querySelectorAll(".legend button"), controlKey)) {
    if (pressed.has(key)) button.click();
  }
};
const scrolled = (part) => [...part.querySelectorAll(".scroll, pre")].map((each) => [each.scrollLeft, each.scrollTop]);
const focused = (part) => {
  if (!part.contains(document.activeElement)) return null;
  return [...keyed(controls(part), controlKey)].find(([, each]) => each === document.activeElement)?.[0];
};

const replaced = (old, made, left) => {
  keep(old, made);
  for (const fold of left) if (fold !== old && old.contains(fold)) made.querySelector(".folded")?.append(fold);
  const [places, focus] = [scrolled(old), focused(old)];
  old.replaceWith(made);
  [...made.querySelectorAll(".scroll, pre")].forEach((each, number) => each.scrollTo(...(places[number] ?? [0, 0])));
  if (focus) keyed(controls(made), controlKey).get(focus)?.focus({ preventScroll: true });
};

// --- the next state --------------------------------------------------------------------------------------------------

// In each section parts stay where they are as long as their order does: one that is moved loses focus and place.
const arrange = (place, wanted, left) => {
  for (const child of [...place.children]) if (!wanted.includes(child) && !left.includes(child)) child.remove();
  let at = place.firstElementChild;
  for (const each of wanted) {
    while (left.includes(at)) at = at.nextElementSibling;
    if (each === at) at = at.nextElementSibling;
    else place.insertBefore(each, at);
  }
};
const merged = (fresh, left) => {
  const known = keyed(parts(document), partKey);
  const stays = new Map();
  for (const [key, part] of keyed(parts(fresh), partKey)) {
    const [old, text] = [known.get(key) ?? opened(part.id), part.outerHTML];
    if (old && origin.get(old) === text) {
      stays.set(part, old);
      continue;
    }
    const made = document.importNode(part, true);
    origin.set(made, text);
    enhance(made);
    stays.set(part, made);
    if (old) replaced(old, made, left);
  }
  return stays;
};
const takeOver = (fresh) => {
  const sections = keyed(document.querySelectorAll("main > section"), (each) => each.getAttribute("aria-labelledby"));
  // Kernels that are open stay, also where the report has nothing on them any more: somebody reads.
  const reading = [...document.querySelectorAll("details.fold[id][open]")];
  const left = reading.filter((fold) => !fresh.getElementById(fold.id));
  const stays = merged(fresh, left);
  const wanted = [];
  for (const [key, made] of keyed(fresh.querySelectorAll("main > section"), (e) => e.getAttribute("aria-labelledby"))) {
    const place = sections.get(key) ?? document.importNode(made, false);
    arrange(place, [...made.children].map((part) => stays.get(part)), left);
    wanted.push(place);
  }
  arrange(document.querySelector("main"), wanted, []);
  document.title = fresh.title;
};
// What has the focus, else the first thing in sight that there still is, stays at its place on the screen.
const MARKS = "h2, h3, summary, caption, tr, figure";
const ownKey = (each) => `${each.tagName} ${each.id || plain(each.textContent)}`;
const marked = (each) => {
  const [part, fold] = [each.closest("main > section > *"), each.closest("details[id]")?.id];
  const [key, own, was] = [`${partKey(part)} 1`, ownKey(each), each.getBoundingClientRect().top];
  return () => {
    if (each.isConnected) return each.getBoundingClientRect().top - was;
    const place = (fold && document.getElementById(fold)) || keyed(parts(document), partKey).get(key);
    const there = [...(place?.querySelectorAll(MARKS) ?? [])].filter((other) => other.checkVisibility());
    const now = there.find((other) => ownKey(other) === own);
    return now ? now.getBoundingClientRect().top - was : null;
  };
};
const inSight = () => {
  const [top, below] = [bar.getBoundingClientRect().bottom, innerHeight];
  const isSeen = (each) => {
    const { top: begins, bottom: ends } = each.getBoundingClientRect();
    return each.checkVisibility() && ends > top && begins < below;
  };
  const seen = [...document.querySelectorAll("main :is(" + MARKS + ")")].filter(isSeen);
  const focus = seen.filter((each) => each.contains(document.activeElement));
  const moves = scrollY ? [...focus, ...seen].map(marked) : []; // at the top of the page is at the top
  return () => {
    const move = moves.map((moved) => moved()).find((by) => by !== null);
    if (move) scrollBy({ top: move, behavior: "instant" });
  };
};

let shown = document.body.dataset.state;
let shownSince = null; // when its state was read, by our clock; null: not known yet
const renew = async () => {
  const answer = await fetch("/", { cache: "no-store" });
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok || fresh.body.dataset.state === shown) return;
  const stay = inSight();
  const isFirst = !shown;
  takeOver(fresh);
  stay();
  shown = document.body.dataset.state = fresh.body.dataset.state;
  shownSince = null;
  if (isFirst) open();
};

// --- the bar ---------------------------------------------------------------------------------------------------------

const span = (seconds) => {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
};
const say = (is, words, more) => {
  bar.hidden = false;
  bar.dataset.is = is;
  if (told.textContent !== words) told.textContent = words; // it is read aloud when it changes
  age.textContent = more;
};
const aged = () => (shownSince === null ? "" : `as of ${span((performance.now() - shownSince) / 1000)} ago`);
const isSelecting = () => {
  const selection = getSelection();
  return selection.type === "Range" && document.querySelector("main").contains(selection.anchorNode);
};
const waiting = () => {
  if (pause.getAttribute("aria-pressed") === "true") return "a newer state is held back";
  return isSelecting() ? "a newer state waits for your selection" : "";
};
const ask = async () => {
  let state;
  try {
    state = await (await fetch("/state", { cache: "no-store" })).json();
    if (state.page && state.page !== shown && (!shown || !waiting())) await renew();
  } catch {
    say("gone", "evo ui has ended; this is the last state that it showed", aged());
    return POLL_MS;
  }
  if (state.page === shown && shown) shownSince = performance.now() - 1000 * state.age_s;
  const more = [aged(), state.page !== shown && shown ? waiting() : state.making ? "reading a newer state" : ""];
  say(state.healthy ? (state.running ? "running" : "ended") : "unwell", state.told, more.filter(Boolean).join("; "));
  return shown ? POLL_MS : SOON_MS;
};

let timer = 0;
const go = async () => {
  clearTimeout(timer);
  timer = -1;
  const rest = await ask();
  if (!document.hidden) timer = setTimeout(go, rest);
  else timer = 0;
};
const goNow = () => {
  if (timer !== -1 && !document.hidden) go();
};
pause.addEventListener("click", () => {
  const held = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", String(held));
  goNow();
});
document.addEventListener("visibilitychange", goNow);
addEventListener("load", goNow);
