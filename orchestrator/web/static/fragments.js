// Replaces a part of the page by HTML of the server, which has escaped everything in it.

export async function load(path) {
  const response = await fetch(path, { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(`${response.status}`);
  return response.text();
}

export function replace(element, html) {
  element.innerHTML = html;
  element.dispatchEvent(new Event("content", { bubbles: true }));
}

// Whether the user is about to write something in an element, which must not be replaced then.
export function isBusy(element) {
  const has = element.contains(document.activeElement) && document.activeElement.matches("input, textarea, button, summary");
  return has || element.querySelector("details.action[open]") !== null || [...element.querySelectorAll("textarea")].some((one) => one.value);
}

// The path of a part of the page at a path.
export function partOf(path, part) {
  const url = new URL(path, location.href);
  url.searchParams.delete("notice");
  url.searchParams.set("part", part);
  return url.href;
}
