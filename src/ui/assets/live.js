// Live updates of a page: one stream of changes to elements by id. Without it a page is whole: reload it to see more.
const main = document.querySelector("main[data-live]");
const state = document.getElementById("live");
const skew = Number(main.dataset.now) - Date.now();
let source = null, last = "", tries = 0, timer = 0, ended = false, refreshing = false, again = false;
const waiting = new Map();

function show(word, text) {
  state.hidden = false;
  state.className = "live " + word;
  if (state.textContent !== text) state.textContent = text;
}

function open() {
  clearTimeout(timer);
  if (document.hidden || source || ended) return;
  const url = new URL(main.dataset.live, location.href);
  if (last) url.searchParams.set("last", last);
  source = new EventSource(url);
  source.onopen = () => { tries = 0; show("on", "live"); };
  source.onmessage = (event) => {
    if (event.lastEventId) last = event.lastEventId;
    for (const change of JSON.parse(event.data)) apply(change);
  };
  source.onerror = () => { close(); retry(); };
}

function close() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

function end() {
  ended = true;
  state.hidden = true;
  close();
}

// A stream ends after two minutes on purpose: the first try is quick, and only the next ones say so.
function retry() {
  const pause = tries ? Math.min(30000, 1000 * 2 ** tries) * (0.5 + Math.random() / 2) : 300;
  if (tries++) show("off", "not live");
  timer = setTimeout(open, pause);
}

function apply(change) {
  const old = change.id && document.getElementById(change.id);
  if (change.op === "reload") return refresh();
  if (change.op === "end") return end();
  if (change.op === "drop") return old?.remove();
  if (old) return swap(old, parsed(change.html));
  if (change.op !== "add") return;
  const list = document.getElementById(change.to), fresh = parsed(change.html);
  if (!list || !fresh) return;
  list.prepend(fresh);
  while (list.children.length > change.max) list.lastElementChild.remove();
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

// Replaces an element, and keeps what the reader did with it: focus, open details, scroll.
function swap(old, fresh) {
  if (!fresh || old.isEqualNode(fresh)) return;
  const active = document.activeElement, inside = old.contains(active);
  if (inside && active.matches("input, select, textarea")) {
    waiting.set(old.id, fresh);
    return;
  }
  const all = "details, pre, .scroll, a, button, summary";
  const before = [...old.querySelectorAll(all)], after = [...fresh.querySelectorAll(all)];
  const twin = (node) => {
    if (node.id) return fresh.querySelector("#" + CSS.escape(node.id));
    const same = (other) => other.localName === node.localName;
    return after.filter(same)[before.filter(same).indexOf(node)];
  };
  const kept = before.map((node) => [node, twin(node)]).filter(([, other]) => other);
  for (const [node, other] of kept) if (node.localName === "details") other.open = node.open;
  const focus = active === old ? fresh : inside ? twin(active) : null;
  const scrolls = kept.map(([node, other]) => [other, node.scrollTop, node.scrollLeft]);
  if (old.localName === "details") fresh.open = old.open;
  old.replaceWith(fresh);
  for (const [node, top, left] of scrolls) if (top || left) node.scrollTo(left, top);
  focus?.focus({ preventScroll: true });
}

// Reads the page again, at most once a second.
async function refresh() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok && !answer.redirected) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-refresh]")) {
        const fresh = page.getElementById(old.id);
        if (fresh) swap(old, document.adoptNode(fresh));
      }
    }
  } catch { /* The stream says that the server is away. */ }
  setTimeout(() => { refreshing = false; if (again) { again = false; refresh(); } }, 1000);
}

// As `Time::relative` on the server writes it.
function ago(time) {
  const seconds = Math.floor((Date.now() + skew - Date.parse(time.dateTime)) / 1000), past = Math.abs(seconds);
  if (seconds === 0) return "now";
  const rough = past < 90 ? past + " s" : past < 5400 ? Math.round(past / 60) + " min"
    : past < 172800 ? Math.round(past / 3600) + " h" : Math.round(past / 86400) + " days";
  return seconds < 0 ? "in " + rough : rough + " ago";
}

setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = ago(time);
    if (time.textContent !== text) time.textContent = text;
  }
}, 5000);
document.addEventListener("focusout", () => setTimeout(() => {
  for (const [id, fresh] of [...waiting]) {
    const old = document.getElementById(id);
    waiting.delete(id);
    if (old) swap(old, fresh);
  }
}));
document.addEventListener("visibilitychange", () => {
  if (ended) return;
  if (document.hidden) { close(); show("off", "paused"); } else { tries = 0; open(); }
});
addEventListener("pagehide", close);
addEventListener("pageshow", (event) => { if (event.persisted) { tries = 0; open(); } });
open();
