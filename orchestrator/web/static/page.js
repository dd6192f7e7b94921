// What every page does: times in the zone of the viewer, the keyboard, the selection of rows, and updates of lists.

const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

export function showTimes(root = document) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) element.textContent = zone.format(at);
  }
}

// The regions that updates replace, as the server sent them.
const shown = new Map();
for (const region of document.querySelectorAll("[data-live]")) shown.set(region.id, region.innerHTML);

// ---- the keyboard

const rows = () => [...document.querySelectorAll("[data-row]")];
const selectedRow = () => document.querySelector("[data-row].selected");

function mark(row) {
  selectedRow()?.classList.remove("selected");
  row?.classList.add("selected");
}

function moveSelection(by) {
  const all = rows();
  const at = all.indexOf(selectedRow());
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  if (!next) return;
  mark(next);
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function toggleRow() {
  const box = selectedRow()?.querySelector("input[type=checkbox]");
  if (!box) return;
  box.checked = !box.checked;
  showSelection();
}

const HELP = [
  ["/", "Go to the search field"], ["j", "Next row"], ["k", "Previous row"], ["Enter", "Open the row"],
  ["x", "Select the row"], ["?", "Show these keys"], ["Esc", "Close"],
];

function make(name, text = "", children = []) {
  const element = document.createElement(name);
  element.append(...(text ? [text] : children));
  return element;
}

function showHelp() {
  let dialog = document.querySelector("dialog.keys");
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.className = "keys panel";
    const list = make("dl");
    for (const [key, meaning] of HELP) list.append(make("dt", "", [make("kbd", key)]), make("dd", meaning));
    const title = make("h2", "Keys");
    title.id = "keys-title";
    dialog.setAttribute("aria-labelledby", title.id);
    const close = make("button", "Close");
    close.className = "second";
    close.addEventListener("click", () => dialog.close());
    dialog.append(title, list, close);
    document.body.append(dialog);
  }
  if (!dialog.open) dialog.showModal();
}

const KEYS = {
  "/": () => document.querySelector("[data-search]")?.focus(),
  j: () => moveSelection(1),
  k: () => moveSelection(-1),
  x: toggleRow,
  "?": showHelp,
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=checkbox]), select, textarea, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});
document.querySelector("[data-help]")?.addEventListener("click", showHelp);

// ---- the selection of rows

const boxes = () => [...document.querySelectorAll("[data-select] tbody input[type=checkbox]")];

function showSelection() {
  const all = boxes();
  const count = all.filter((box) => box.checked).length;
  for (const output of document.querySelectorAll("[data-selected]")) output.textContent = count ? `${count} selected` : "";
  const head = document.querySelector("[data-select-all]");
  if (head) {
    head.checked = count > 0 && count === all.length;
    head.indeterminate = count > 0 && count < all.length;
  }
}

function addSelectAll() {
  const cell = document.querySelector("[data-select] thead th.check");
  if (!cell || cell.querySelector("input")) return;
  const box = document.createElement("input");
  box.type = "checkbox";
  box.dataset.selectAll = "";
  box.ariaLabel = "Select all rows of this page";
  box.addEventListener("change", () => {
    for (const one of boxes()) one.checked = box.checked;
    showSelection();
  });
  cell.append(box);
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-select] tbody input")) showSelection();
});
addSelectAll();
showSelection();

// ---- updates

const PERIOD_MS = 5000;
const STORED = "orchestrator.updates";

function remember() {
  const focused = document.activeElement;
  const region = focused?.closest("[data-live]");
  return {
    row: selectedRow()?.dataset.row,
    checked: new Set(boxes().filter((box) => box.checked).map((box) => box.value)),
    open: new Set([...document.querySelectorAll("[data-live] details[open]")].map(placeOf)),
    focus: region && { region: region.id, row: focused.closest("[data-row]")?.dataset.row, place: placeOf(focused) },
    scroll: [...document.querySelectorAll("[data-live] .scroll")].map((one) => one.scrollLeft),
  };
}

// Where an element is: its row, or else its region, and its number among those of its kind in there.
function placeOf(element) {
  const within = element.closest("[data-row]") ?? element.closest("[data-live]");
  const number = [...within.querySelectorAll(element.localName)].indexOf(element);
  return `${within.dataset.row ?? within.id}/${element.localName}/${number}`;
}

function restore(state) {
  for (const box of boxes()) box.checked = state.checked.has(box.value);
  mark(rows().find((row) => row.dataset.row === state.row));
  for (const details of document.querySelectorAll("[data-live] details")) details.open = state.open.has(placeOf(details));
  document.querySelectorAll("[data-live] .scroll").forEach((one, n) => { one.scrollLeft = state.scroll[n] ?? 0; });
  const { focus } = state;
  if (!focus) return;
  const name = focus.place.split("/").at(-2);
  const region = document.getElementById(focus.region);
  const again = [...(region?.querySelectorAll(name) ?? [])].find((one) => placeOf(one) === focus.place);
  again?.focus({ preventScroll: true });
}

function replaceRegions(fetched) {
  const changed = [...document.querySelectorAll("[data-live]")].filter((region) => {
    const html = fetched.getElementById(region.id)?.innerHTML;
    return html !== undefined && html !== shown.get(region.id);
  });
  if (!changed.length) return;
  const state = remember();
  for (const region of changed) {
    const found = fetched.getElementById(region.id);
    shown.set(region.id, found.innerHTML);
    region.replaceChildren(...found.childNodes);
    showTimes(region);
  }
  addSelectAll();
  restore(state);
  showSelection();
}

function startUpdates(place) {
  const label = make("label", " Update every 5 s");
  const box = document.createElement("input");
  let isBusy = false;
  let notBefore = 0; // a slow page updates less often: for a tenth of the time at most
  label.className = "refresh";
  box.type = "checkbox";
  box.checked = localStorage.getItem(STORED) !== "off";
  label.prepend(box);
  place.append(label);

  async function update() {
    const isPaused = !box.checked || document.hidden || document.querySelector("dialog[open]");
    if (isBusy || isPaused || performance.now() < notBefore) return;
    isBusy = true;
    const began = performance.now();
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
      if (!response.ok) throw new Error(response.statusText);
      replaceRegions(new DOMParser().parseFromString(await response.text(), "text/html"));
      setFailed(false);
    } catch {
      setFailed(true);
    }
    isBusy = false;
    notBefore = performance.now() + 9 * (performance.now() - began);
  }

  function setFailed(failed) {
    label.classList.toggle("failed", failed);
    label.lastChild.textContent = failed ? " Cannot update; trying again" : " Update every 5 s";
  }

  box.addEventListener("change", () => {
    localStorage.setItem(STORED, box.checked ? "on" : "off");
    update();
  });
  document.addEventListener("visibilitychange", update);
  setInterval(update, PERIOD_MS);
}

const place = document.querySelector("[data-refresh]");
if (place && document.querySelector("[data-live]")) startUpdates(place);
document.addEventListener("content", (event) => showTimes(event.target)); // a part of the page was replaced
showTimes();
