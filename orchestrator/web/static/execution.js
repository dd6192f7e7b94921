// The page of an execution: the drawer without reloads, the graph to pan and zoom, and live updates.
import { setUpDrawer } from "./drawer.js";
import { setUpGraph } from "./graph.js";
import { setUpLive } from "./live.js";

const root = document.querySelector(".execution");
const drawer = setUpDrawer(root);
const graph = setUpGraph(root);
setUpLive(root, { drawer, graph });
