// The graph: pan by dragging, zoom by the wheel and by buttons, recolour nodes by their classes.
import { load, partOf } from "./fragments.js";

const REFRESH_MS = 4000;
const READABLE = 1.7; // how much smaller than drawn the text may be at first

export function setUpGraph(root) {
  const canvas = root.querySelector("[data-canvas]");
  if (!canvas) return { show() {} };
  const tools = root.querySelector("[data-graph-source]");
  let box = null;

  const svg = () => canvas.querySelector("svg.graph");
  const maxHeight = () => innerHeight * 0.7;
  const size = () => [Number(svg().getAttribute("width")), Number(svg().getAttribute("height"))];

  function apply() {
    svg().setAttribute("viewBox", box.map((one) => one.toFixed(1)).join(" "));
  }

  // Show the whole graph; or, as long as its text is readable, its beginning.
  function fit(most = Infinity) {
    const [width, height] = size();
    const scale = Math.min(Math.max(width / canvas.clientWidth, height / maxHeight(), 1), most);
    canvas.style.height = `${Math.min(Math.ceil(height / scale) + 2, maxHeight())}px`;
    const [w, h] = [canvas.clientWidth * scale, canvas.clientHeight * scale];
    box = [Math.min(0, (width - w) / 2), (height - h) / 2, w, h];
    apply();
  }

  function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const [left, top, width, height] = box;
    const scale = 1 / by;
    box = [left + (width * x * (1 - scale)) / canvas.clientWidth, top + (height * y * (1 - scale)) / canvas.clientHeight, width * scale, height * scale];
    apply();
  }

  function pan(dx, dy) {
    box = [box[0] - (dx * box[2]) / canvas.clientWidth, box[1] - (dy * box[3]) / canvas.clientHeight, box[2], box[3]];
    apply();
  }

  // A small graph fits as it is; a large one is a window that can be moved.
  const [width, height] = size();
  if (width > canvas.clientWidth || height > maxHeight()) {
    canvas.classList.add("pannable");
    root.querySelector("[data-zoom]").hidden = false;
    fit(READABLE);
    listen();
  }

  function listen() {
    let from = null;
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) [from, moved] = [[event.clientX, event.clientY], 0];
    });
    addEventListener("pointermove", (event) => {
      if (!from) return;
      const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
      moved += Math.abs(dx) + Math.abs(dy);
      from = [event.clientX, event.clientY];
      canvas.classList.toggle("panning", moved > 4);
      pan(dx, dy);
    });
    addEventListener("pointerup", () => {
      from = null;
      canvas.classList.remove("panning");
    });
    canvas.addEventListener("click", (event) => {
      if (moved > 4) [event.preventDefault(), event.stopPropagation()];
    }, true);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const at = canvas.getBoundingClientRect();
      zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.clientX - at.left, event.clientY - at.top);
    }, { passive: false });
    root.querySelector("[data-zoom]").addEventListener("click", (event) => {
      const by = event.target.closest("[data-zoom-by]")?.dataset.zoomBy;
      if (by !== undefined) Number(by) ? zoom(Number(by)) : fit();
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (!step || event.target !== canvas) return;
      event.preventDefault();
      pan(...step);
    });
    // A node that gets the focus outside of the window is moved into it.
    canvas.addEventListener("focusin", (event) => {
      const node = event.target.closest("a")?.getBoundingClientRect();
      const window = canvas.getBoundingClientRect();
      if (!node || (node.left >= window.left && node.right <= window.right && node.top >= window.top && node.bottom <= window.bottom)) return;
      pan(window.left + window.width / 2 - (node.left + node.width / 2), window.top + window.height / 2 - (node.top + node.height / 2));
    });
  }

  // Groups have counts of many steps: they are drawn again by the server, now and then.
  let timer = null;
  function refreshLater() {
    timer ??= setTimeout(async () => {
      timer = null;
      try {
        const parsed = new DOMParser().parseFromString(await load(partOf(tools.dataset.graphSource, "graph")), "text/html");
        const fresh = parsed.querySelector("svg.graph");
        if (box) fresh.setAttribute("viewBox", svg().getAttribute("viewBox"));
        if (!svg().contains(document.activeElement)) svg().replaceWith(fresh);
      } catch { /* the next change tries again */ }
    }, REFRESH_MS);
  }

  return {
    show(steps) {
      let hidden = false;
      for (const one of steps) {
        const node = canvas.querySelector(`.node[data-step="${CSS.escape(one.step)}"]`);
        if (node) node.setAttribute("class", [...node.classList].filter((name) => !name.startsWith("s-")).concat(`s-${one.status}`).join(" "));
        else hidden ||= !one.step.includes("#");
      }
      if (hidden && "collapsed" in tools.dataset) refreshLater();
    },
  };
}
