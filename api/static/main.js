// Which page the address names, and the state of the service in the bar.

import { offerKeys } from "/static/access.js";
import { Problem, readiness, repeat } from "/static/api.js";
import { fill, h, setText } from "/static/dom.js";
import { Freshness } from "/static/freshness.js";
import { showCluster } from "/static/pages/cluster.js";
import { showEditor } from "/static/pages/editor.js";
import { showStreams } from "/static/pages/streams.js";
import { showTask } from "/static/pages/task.js";
import { showTasks } from "/static/pages/tasks.js";

const HEALTH_MS = 5_000;

const main = document.getElementById("main");
let leave = new AbortController();

/** `#/tasks/by_sip/edit` -> the page, what marks it in the navigation, and its arguments. */
function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (parts[0] === "cluster") return { show: showCluster, mark: "cluster", title: "Cluster" };
  if (parts[0] === "streams") return { show: showStreams, mark: "streams", title: "Streams" };
  if (parts[0] === "new")
    return { show: showEditor, mark: "new", title: "New task", stream: parts[1] };
  if (parts[0] === "tasks" && parts[1]) {
    const show = parts[2] === "edit" ? showEditor : showTask;
    return { show, mark: "tasks", title: parts[1], name: parts[1] };
  }
  return { show: showTasks, mark: "tasks", title: "Tasks" };
}

async function turn({ focus }) {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const page = route();
  document.title = `${page.title} - Mars`;
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    if (link.dataset.page === page.mark) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const root = h("div", { class: "page" });
  const freshness = new Freshness();
  fill(main, freshness.element, root);
  if (focus) main.focus();
  try {
    await page.show(root, { ...page, signal, freshness });
  } catch (error) {
    if (signal.aborted) return;
    leave.abort(); // what else the page does
    const focused = main.contains(document.activeElement);
    fill(main, h("h1", {}, page.title), h("p", { class: "problem", role: "alert" }, error.message));
    if (focused) main.focus();
    if (!(error instanceof Problem)) throw error;
  }
}

async function health() {
  const place = document.getElementById("health");
  try {
    const services = await readiness();
    const away = Object.keys(services).filter((name) => services[name] !== "ok");
    place.dataset.state = away.length ? "wrong" : "ok";
    setText(place, away.length ? `Missing: ${away.join(", ")}` : "All servers answer");
  } catch {
    place.dataset.state = "wrong";
    setText(place, "The API does not answer");
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => turn({ focus: true }));
offerKeys(() => turn({ focus: true }));
turn({ focus: false });
repeat(HEALTH_MS, new AbortController().signal, health, () => {}); // says itself what is wrong
