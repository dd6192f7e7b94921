// The drawer of a step: links to a step open it in place. Without scripts they load the page with it.
import { isBusy, load, partOf, replace } from "./fragments.js";

const LINKS = "[data-step-link], svg.graph a, .pager a";

export function setUpDrawer(root) {
  const drawer = root.querySelector("#drawer");
  const columns = drawer.parentElement;
  let opener = null;

  function mark(unit) {
    root.querySelector(".graph .chosen")?.classList.remove("chosen");
    if (unit) root.querySelector(`.graph .node[data-step="${CSS.escape(unit)}"]`)?.classList.add("chosen");
  }

  function show(html) {
    columns.classList.toggle("with-drawer", html !== "");
    drawer.hidden = html === "";
    replace(drawer, html);
    mark(drawer.querySelector("[data-unit]")?.dataset.unit);
  }

  async function open(path) {
    try {
      show(await load(partOf(path, "step")));
    } catch {
      location.href = path;
    }
  }

  async function openPlace() {
    if (new URLSearchParams(location.search).has("step")) await open(location.href);
    else show("");
  }

  root.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const close = event.target.closest("[data-close-drawer]");
    const link = event.target.closest(LINKS);
    if (!close && !link) return;
    const path = (close ?? link).getAttribute("href");
    const inDrawer = drawer.contains(link);
    if (link?.closest(".pager") && !inDrawer) return;
    if (link?.querySelector(".node.group")) return; // the page draws a group that is expanded
    event.preventDefault();
    history.pushState(null, "", path);
    if (close) {
      show("");
      opener?.focus();
    } else {
      if (!inDrawer) opener = link;
      open(path).then(() => drawer.focus({ preventScroll: innerWidth > 900 }));
    }
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !drawer.hidden && !event.target.matches("input, textarea")) drawer.querySelector("[data-close-drawer]")?.click();
  });
  addEventListener("popstate", openPlace);
  mark(drawer.querySelector("[data-unit]")?.dataset.unit);

  return {
    // A unit that is shown has changed: its details are loaded again, unless the user writes in them.
    refresh(units) {
      const unit = drawer.querySelector("[data-unit]")?.dataset.unit;
      if (drawer.hidden || !unit || !units.has(unit) || isBusy(drawer)) return;
      load(partOf(location.href, "step")).then((html) => !isBusy(drawer) && show(html), () => {});
    },
  };
}
