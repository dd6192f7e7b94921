// Live updates: one stream of events, open while the page is shown.
import { isBusy, load, partOf, replace } from "./fragments.js";
import { setUpTimeline } from "./timeline.js";

const words = (status) => status.replaceAll("_", " ");
const SUMMARY_MS = 1000;

export function setUpLive(root, { drawer, graph }) {
  const controls = root.querySelector("[data-live-controls]");
  const pause = controls.querySelector("[data-live-pause]");
  const summary = root.querySelector("#summary");
  const timeline = setUpTimeline(root);
  let position = Number(root.dataset.position);
  let source = null;
  let isPaused = false;
  let entries = 0;
  controls.hidden = false;

  function tell(state, text) {
    controls.dataset.state = state;
    pause.hidden = ["ended", "deleted"].includes(state);
    const shown = controls.querySelector("[data-live-state]");
    if (shown.textContent !== text) shown.textContent = text;
  }

  function close() {
    source?.close();
    source = null;
  }

  function open() {
    close();
    if (isPaused || document.hidden) return;
    source = new EventSource(`${root.dataset.live}?after=${position}`);
    source.addEventListener("open", () => tell("live", "live"));
    source.addEventListener("error", () => tell("offline", source.readyState === EventSource.CLOSED ? "updates have stopped" : "connecting"));
    source.addEventListener("offline", () => tell("offline", "Redis is unavailable; waiting"));
    source.addEventListener("online", () => tell("live", "live"));
    source.addEventListener("change", (event) => apply(JSON.parse(event.data)));
    source.addEventListener("end", () => tell("ended", "ended"));
    source.addEventListener("gone", () => {
      close();
      tell("deleted", "this execution was deleted");
    });
    source.addEventListener("reload", () => {
      close();
      if (isBusy(root)) tell("offline", "reload the page to see changes");
      else location.reload();
    });
  }

  let known = root.querySelector("[data-execution-status]").className;
  let timer = null;
  let isStale = false;
  function refreshSummary() {
    isStale = true;
    timer ??= setTimeout(async () => {
      timer = null;
      if (isBusy(summary)) return;
      isStale = false;
      const html = await load(partOf(root.dataset.summary, "summary")).catch(() => null);
      if (html !== null && !isBusy(summary)) replace(summary, html);
    }, SUMMARY_MS);
  }
  summary.addEventListener("focusout", () => isStale && refreshSummary());

  function apply(change) {
    position = change.position;
    showStatus(change);
    showCounts(change.counts);
    const units = new Set(change.steps.map((one) => one.step));
    for (const one of change.steps) showUnit(one);
    graph.show(change.steps);
    timeline.show(change.steps);
    timeline.end(change.ended_at);
    drawer.refresh(units);
    entries += change.new_entries;
    const more = root.querySelector("[data-new-entries]");
    if (more && entries) {
      more.hidden = false;
      more.textContent = `Show ${entries} new ${entries === 1 ? "entry" : "entries"}`;
    }
  }

  function showStatus({ status, steps }) {
    const badge = root.querySelector("[data-execution-status]");
    const name = `badge large s-${status}`;
    if (badge.className !== name) {
      badge.className = `${name} changed`;
      badge.textContent = words(status);
    }
    if (known.replace(" changed", "") !== name) {
      known = name;
      if (controls.dataset.state === "ended") tell("live", "live");
      refreshSummary();
    } else if (steps.some((one) => ["waiting", "failed", "retry", "on_hold"].includes(one.status)) || summary.querySelector(".reasons, .signal")) refreshSummary();
  }

  function showCounts(counts) {
    const list = root.querySelector("[data-counts]");
    const names = Object.keys(counts);
    for (const item of [...list.children]) if (!(item.dataset.count in counts)) item.remove();
    for (const name of names) {
      let item = list.querySelector(`[data-count="${name}"]`);
      if (!item) {
        item = document.createElement("li");
        item.className = `s-${name}`;
        item.dataset.count = name;
        item.append(document.createElement("b"), ` ${words(name)}`);
        const next = [...list.children].find((one) => one.dataset.count > name);
        list.insertBefore(item, next ?? null);
      }
      const text = counts[name].toLocaleString("en");
      if (item.firstElementChild.textContent !== text) item.firstElementChild.textContent = text;
    }
  }

  function showUnit(one) {
    for (const row of root.querySelectorAll(`[data-unit="${CSS.escape(one.step)}"]`)) {
      const badge = row.querySelector("[data-status]");
      if (badge) {
        badge.className = `badge s-${one.status}`;
        badge.textContent = words(one.status);
      }
      const fields = { "[data-attempt]": one.dispatched_at ? one.attempt : "", "[data-worker]": one.worker ?? "", "[data-error]": one.error ?? null };
      for (const [name, value] of Object.entries(fields)) {
        const cell = row.matches("tr") ? row.querySelector(name) : null;
        if (cell && value !== null) cell.textContent = value;
      }
    }
  }

  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", isPaused);
    pause.textContent = isPaused ? "Resume updates" : "Pause updates";
    if (isPaused) {
      close();
      tell("paused", "paused");
    } else open();
  });
  // A page in the background needs no updates; shown again, it goes on from its position.
  document.addEventListener("visibilitychange", () => (document.hidden ? (close(), isPaused || tell("paused", "in the background")) : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  open();
}
