// The explorer as a page of its own, on a server that ends when its pages have closed.
import { start } from "./page.js";

const HEARTBEAT = 20_000; // milliseconds
const me = `${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;

async function ask(path, body) {
  const sent = body && { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await fetch(path, sent).catch(() => null);
  if (!answer) return { ok: false, said: { error: "The server has ended, or does not answer: start sinkjax explore again." } };
  const said = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  return { ok: answer.ok, status: answer.status, said };
}

// The address holds the state.
const link = {
  read: () => JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}"),
  write: (state) => history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`),
  listen: (changed) => window.addEventListener("hashchange", changed),
  address: () => location.href,
};

const alive = () => navigator.sendBeacon(`seen/${me}`);
alive();
setInterval(alive, HEARTBEAT);
window.addEventListener("pageshow", alive);
window.addEventListener("pagehide", () => navigator.sendBeacon(`left/${me}`));

start({ root: document, page: document.body, ask, link }).then((model) => {
  if (model) document.title = `${model.title} · sinkjax explorer`;
});
