// The timeline: bars that grow, and new bars for what a step does next.

const SVG = "http://www.w3.org/2000/svg";
const KINDS = { queued: "queued", in_progress: "running", retry: "back_off", waiting: "waiting", deferred: "waiting", on_hold: "waiting" };
const MAX_ROWS = 300;

export function setUpTimeline(root) {
  const timeline = root.querySelector(".timeline");
  if (!timeline) return { show() {}, end() {} };
  const start = Number(timeline.dataset.start);
  const ahead = Number(timeline.dataset.now) - Date.now(); // the clock of Redis and ours
  const now = () => Date.now() + ahead;
  let isFinal = "final" in timeline.dataset;
  let end = Number(timeline.dataset.end);

  function draw() {
    if (!isFinal) end = Math.max(now(), end);
    const span = Math.max(end - start, 1);
    for (const bar of timeline.querySelectorAll("rect")) {
      const from = Number(bar.dataset.start);
      const to = Number(bar.dataset.end ?? end);
      bar.setAttribute("x", ((1000 * (from - start)) / span).toFixed(2));
      bar.setAttribute("width", Math.max((1000 * (to - from)) / span, 1.5).toFixed(2));
    }
    timeline.querySelector("[data-axis-end]").textContent = span < 60000 ? `${(span / 1000).toFixed(1)} s` : `${Math.floor(span / 60000)} m ${Math.round((span % 60000) / 1000)} s`;
  }

  function addRow(one) {
    const rows = timeline.querySelector("tbody");
    if (rows.children.length >= MAX_ROWS) return null;
    const row = document.createElement("tr");
    row.dataset.unit = one.step;
    const name = document.createElement("th");
    name.scope = "row";
    const link = document.createElement("a");
    const path = new URL(location.href);
    path.searchParams.set("step", one.step);
    link.href = path.pathname + path.search;
    link.className = "id";
    link.dataset.stepLink = "";
    link.textContent = one.step;
    name.append(link);
    const status = document.createElement("td");
    const badge = document.createElement("span");
    badge.dataset.status = "";
    status.append(badge);
    const cell = document.createElement("td");
    const bars = document.createElementNS(SVG, "svg");
    for (const [key, value] of [["class", "bars"], ["viewBox", "0 0 1000 16"], ["preserveAspectRatio", "none"], ["role", "img"], ["aria-label", `bars of ${one.step}`]]) bars.setAttribute(key, value);
    cell.append(bars);
    row.append(name, status, cell);
    rows.append(row);
    return row;
  }

  function update(one) {
    const kind = KINDS[one.status];
    let row = timeline.querySelector(`tr[data-unit="${CSS.escape(one.step)}"]`);
    if (!row && !kind && !one.started_at) return;
    row ??= addRow(one);
    if (!row) return;
    const bars = row.querySelector("svg");
    const last = bars.lastElementChild;
    const isOpen = last && last.dataset.end === undefined;
    if (isOpen && last.classList.contains(kind)) return;
    const at = one.status === "in_progress" ? one.started_at : kind ? one.dispatched_at && one.status === "queued" ? one.dispatched_at : null : one.ended_at;
    const time = at ? Date.parse(at) : now();
    if (isOpen) {
      last.dataset.end = Math.max(time, Number(last.dataset.start));
      if (one.status === "failed" || one.status === "retry") last.classList.add("failed");
    }
    // A step that began and ended between two looks.
    const missed = !isOpen && !kind && one.started_at;
    if (kind || missed) {
      const bar = document.createElementNS(SVG, "rect");
      bar.setAttribute("class", missed ? (one.status === "failed" ? "running failed" : "running") : kind);
      bar.setAttribute("y", "2");
      bar.setAttribute("height", "12");
      bar.dataset.start = missed ? Date.parse(one.started_at) : time;
      if (missed) bar.dataset.end = time;
      bars.append(bar);
    }
  }

  if (!isFinal) setInterval(() => document.hidden || draw(), 1000);
  return {
    show(steps) {
      steps.forEach(update);
      draw();
    },
    end(at) {
      isFinal = at !== null;
      if (isFinal) end = Math.max(Date.parse(at), end);
      draw();
    },
  };
}
