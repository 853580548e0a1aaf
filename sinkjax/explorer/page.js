// The explorer: its state is sent after every change, and what comes back is drawn. `start` makes it live, wherever it stands.
import { bars, lines } from "./draw.js";
import { element, legend, maps, number, scaleFor, visible } from "./viewer.js";

const KINDS = {
  none: { says: "no edit", uses: [], everywhere: true },
  mask_key: { says: "mask its key", uses: ["layers", "heads"] },
  attend_self: { says: "see only itself", uses: ["layers", "heads"] },
  add_logit: { says: "add to its logits", uses: ["value", "layers", "heads"], name: "added", value: -8, range: () => [-20, 20, 0.5] },
  swap_embeddings: { says: "swap embeddings", uses: ["other"] },
  scale_head_output: { says: "scale head output", uses: ["value", "layers", "heads"], name: "factor", value: 0, range: () => [-4, 8, 0.1] },
  set_residual: { says: "set a residual dim", uses: ["value", "dim", "layers"], name: "set to", value: 0, range: (largest) => round(largest) },
  drop_mlp: { says: "drop its MLP", uses: ["layers"] },
  edit_weights: { says: "scale weights", uses: ["value", "matrix", "layers"], name: "factor", value: 0, range: () => [-4, 8, 0.1], everywhere: true },
};
const TYPING = 350; // milliseconds of rest after which a prompt counts as typed
const NARROW = 700; // pixels, below which what stands side by side is stacked

function unpack({ shape, data }) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return { shape, data: new Float32Array(bytes.buffer) };
}

function unpacked(side) {
  const arrays = Object.entries(side).filter(([, value]) => value.data !== undefined);
  return { ...side, ...Object.fromEntries(arrays.map(([name, value]) => [name, unpack(value)])) };
}

function round(value) {
  const power = 10 ** Math.floor(Math.log10(value)), most = Math.ceil(value / power) * power;
  return [-most, most, most / 200];
}

// Makes the explorer live.
//   root   the document or shadow root that holds it
//   page   its outermost element
//   ask    (path, body) to a promise of { ok, status, said }
//   link   where the state on screen is kept: read() it, write(state), listen(changed); an address() that can be copied, or none
// Returns a promise of the model's facts, when the first state is drawn.
export async function start({ root, page, ask, link }) {
  const $ = (id) => root.getElementById(id);
  let model, state, shown = null, explained = null, slot = "token", busy = false, dirty = false, fresh = false, failed = false;
  const met = new Set(); // the kinds of edits that were measured, which are compiled

  const uses = (what) => KINDS[state.kind].uses.includes(what);
  const largest = () => (shown ? Math.max(...shown.before.largest.data) : 100);

  function tell(text, wrong = false) {
    $("status").textContent = text;
    $("status").classList.toggle("wrong", wrong);
  }

  // One request at a time; what changes meanwhile goes with the next one, in its last state.
  async function refresh() {
    if (busy) { dirty = true; return; }
    busy = true;
    page.classList.add("busy");
    do {
      dirty = false;
      const begun = performance.now(), kind = state.kind;
      const slow = setTimeout(() => tell(met.has(kind) ? "computing …" : "compiling … (once for each kind of edit and length of prompt)"), 700);
      try {
        const { ok, status, said } = await ask("measure", state);
        clearTimeout(slow);
        if (status === 409) dirty = true;
        else if (ok) {
          fresh = failed = false;
          met.add(kind);
          shown = { ...said, before: unpacked(said.before), after: said.after && unpacked(said.after) };
          draw();
          const cells = said.after && !said.changed ? `no cell changed: all ${said.addressed.toLocaleString("en-US")} had these values already, so nothing differs · ` : said.after ? `${said.changed.toLocaleString("en-US")} of ${said.addressed.toLocaleString("en-US")} cells changed · ` : "";
          tell(`${cells}computed in ${number(said.milliseconds)} ms, shown after ${Math.round(performance.now() - begun)} ms`);
          link.write(state);
          page.dataset.shown = JSON.stringify(state);
        } else if (fresh && (state.token || state.other !== 1 || state.key)) {
          Object.assign(state, { token: 0, other: 1, key: 0 }); // positions of the prompt before this one
          fresh = false;
          dirty = true;
        } else if (!dirty) {
          failed = true;
          tell(said.error, true);
          page.dataset.shown = JSON.stringify(state);
        }
      } catch (error) {
        clearTimeout(slow);
        tell(String(error), true);
      }
    } while (dirty);
    busy = false;
    page.classList.remove("busy");
  }

  function change(values) {
    Object.assign(state, values);
    controls();
    refresh();
  }

  // What the controls show, from the state alone.
  function controls() {
    if (root.activeElement !== $("prompt")) $("prompt").value = state.prompt;
    $("bos").value = state.bos;
    for (const button of $("kinds").children) button.setAttribute("aria-pressed", button.dataset.kind === state.kind);
    for (const row of ["value", "dim", "matrix", "layers", "heads"]) $(`${row}-row`).hidden = !uses(row);
    const kind = KINDS[state.kind];
    if (uses("value")) {
      const [min, max, step] = kind.range(largest());
      $("value-name").textContent = kind.name;
      Object.assign($("value"), { min, max, step });
      $("value").value = state.value;
      if (root.activeElement !== $("value-number")) $("value-number").value = state.value;
    }
    Object.assign($("dim"), { max: model.width - 1 });
    if (root.activeElement !== $("dim")) $("dim").value = state.dim;
    $("matrix").value = state.matrix;
    ["row", "col"].forEach((id, axis) => {
      $(id).max = (model.matrices[state.matrix]?.[axis] ?? 1) - 1;
      if (root.activeElement !== $(id)) $(id).value = state[id] ?? "";
    });
    $("components-words").textContent = shown ? `change of the attention to ${named(state.key)} when one component's output at this token is set to zero, without the edit` : "";
    const [first, last] = state.layers ?? [0, model.layers - 1], most = Math.max(model.layers - 1, 1);
    for (const id of ["first", "last", "layer"]) $(id).max = model.layers - 1;
    $("first").value = first;
    $("last").value = last;
    $("fill").style.left = `calc(.5rem + (100% - 1rem) * ${first / most})`;
    $("fill").style.width = `calc((100% - 1rem) * ${(last - first) / most})`;
    const all = state.layers === null ? `all ${model.layers}` : first === last ? `layer ${first}` : `${first} to ${last} of 0 to ${model.layers - 1}`;
    $("layers-words").textContent = all;
    for (const box of $("heads").querySelectorAll("input")) box.checked = state.heads === null || state.heads.includes(Number(box.value));
    $("layer").value = state.layer;
    $("layer-words").textContent = state.layer;
    $("head").value = state.head ?? "mean";
    slots();
    marks();
  }

  const named = (position) => `${position} “${visible(shown.tokens[position] ?? "")}”`;

  function slots() {
    $("slots").hidden = !uses("other");
    for (const name of ["token", "other"]) {
      $(`slot-${name}`).textContent = shown ? named(state[name]) : state[name];
      $(`slot-${name}`).setAttribute("aria-pressed", slot === name);
    }
  }

  function marks() {
    [...$("tokens").children].forEach((button, index) => {
      button.classList.toggle("token", !KINDS[state.kind].everywhere && index === state.token);
      button.classList.toggle("other", uses("other") && index === state.other && index !== state.token);
      button.setAttribute("aria-label", `token ${index}`);
    });
  }

  function tokens() {
    const buttons = shown.tokens.map((text, index) => element("button", {
      type: "button", title: `token ${index}: ${JSON.stringify(text)}`,
      onclick: () => (uses("other") ? change({ [slot]: index }) : change({ token: index, ...(state.kind === "none" ? { kind: "mask_key" } : {}) })),
    }, element("small", { textContent: index }), visible(text)));
    $("tokens").replaceChildren(...buttons);
    $("key").replaceChildren(...shown.tokens.map((_, index) => element("option", { value: index, textContent: named(index) })));
  }

  function edited() {
    const [first, last] = state.layers ?? [0, model.layers - 1];
    const layers = uses("layers") ? Array.from({ length: last - first + 1 }, (_, index) => first + index) : [];
    const positions = KINDS[state.kind].everywhere ? [] : uses("other") ? [state.token, state.other] : [state.token];
    return { layers: new Set(layers), depths: new Set(uses("layers") ? layers.map((layer) => layer + 1) : []), positions: new Set(positions) };
  }

  function key(section) {
    const place = $(section).querySelector(".key");
    place.replaceChildren(element("span", { textContent: "before" }), ...(shown.after ? [element("span", { className: "after", textContent: "after" })] : []));
  }

  function draw() {
    const { before, after } = shown, both = Object.entries({ before, after }).filter(([, side]) => side), sides = (name) => both.map(([, side]) => side[name]);
    tokens();
    const texts = shown.tokens.map(visible), numbered = (size) => Array.from({ length: size }, (_, index) => String(index)), mark = edited();
    const weights = scaleFor([...sides("attention"), ...sides("received")], false, 1), activations = scaleFor(sides("largest"), true);
    const map = (section, name, scale, quantity, { marked, ...given }) => {
      legend($(section).querySelector(".legend"), scale, quantity, $("difference").checked && after && "before");
      maps($(section).querySelector(".pair"), { scale, title: $(section).querySelector("h2").textContent, columns: texts, difference: $("difference").checked,
        sides: both.map(([side, found]) => ({ name: side, of: (row, column) => found[name].data[row * texts.length + column] })),
        none: after ? "" : "Choose an edit to see what it changes.", edited: { rows: marked, columns: mark.positions }, ...given });
    };
    map("attention", "attention", weights, "attention weight", { rows: texts, rowTitle: "query", columnTitle: "key", square: true, marked: mark.positions,
      say: (row, column) => `query ${named(row)}\nkey ${named(column)}` });
    map("received", "received", weights, "attention weight", { rows: numbered(model.layers), rowTitle: "layer", columnTitle: "key", marked: mark.layers,
      say: (row, column) => `layer ${row}\nkey ${named(column)}` });
    map("activation", "largest", activations, "max |h|", { rows: numbered(model.layers + 1), rowTitle: "depth", columnTitle: "token", marked: mark.depths,
      say: (row, column) => `depth ${row}\ntoken ${named(column)}\ndim ${before.dim[row][column]}` + (after ? `, after the edit ${after.dim[row][column]}` : "") });
    const percent = (side) => side && side.sink.data.map((value) => 100 * value);
    lines($("sink").querySelector(".chart"), { before: percent(before), after: percent(after), labels: numbered(model.layers), top: 100,
      ticks: [0, 25, 50, 75, 100], unit: "% of heads, attention above 0.3", suffix: "%", title: "share of heads that sink, by layer", say: (index) => `layer ${index}` });
    const losses = sides("loss").flatMap(({ data }) => [...data]).filter((value) => !Number.isNaN(value));
    const top = Math.max(4, 4 * Math.ceil(Math.max(...losses) / 4)), ahead = (side) => side && side.loss.data.slice(0, -1);
    lines($("loss").querySelector(".chart"), { before: ahead(before), after: ahead(after), labels: texts.slice(1), tokens: true, top,
      ticks: [0, 0.25, 0.5, 0.75, 1].map((part) => part * top), unit: "nats", suffix: " nats", title: "loss of each token", say: (index) => `token ${named(index + 1)}` });
    bars($("words").querySelector(".pair"), both.map(([name, side]) => (
      { side: name, caption: name, labels: side.words.map(visible), values: [...side.chances.data].map((chance) => 100 * chance), digits: 1, suffix: "%" })));
    if (explained !== subject()) clear();
    $("continued").replaceChildren();
    key("sink");
    key("loss");
    $("key").value = state.key;
    $("python").textContent = shown.python;
    $("yaml").textContent = shown.yaml;
    controls();
  }

  function choose(kind) {
    const values = { kind };
    if (KINDS[kind].value !== undefined) values.value = KINDS[kind].value;
    if (kind === "set_residual") values.dim = largestDim();
    if (kind === "edit_weights") Object.assign(values, { matrix: Object.keys(model.matrices).at(-1), row: null, col: largestDim() });
    if (kind === "swap_embeddings" && state.other === state.token) values.other = state.token === 0 ? 1 : 0;
    slot = kind === "swap_embeddings" ? "other" : "token";
    change(values);
  }

  // The dim in which the token is largest, at any depth, before the edit.
  function largestDim() {
    const { largest, dim } = shown.before, width = largest.shape[1];
    const depths = dim.map((_, depth) => depth).sort((one, two) => largest.data[two * width + state.token] - largest.data[one * width + state.token]);
    return dim[depths[0]][state.token];
  }

  // What the effects of components depend on.
  const subject = () => JSON.stringify([state.prompt, state.bos, state.key]);

  function clear(words = "") {
    $("effects").replaceChildren();
    $("agreement").textContent = words;
  }

  async function explain() {
    const asked = explained = subject();
    clear("replacing each component …");
    const { ok, said } = await ask("explain", state);
    if (subject() !== asked) return;
    if (!ok) return clear(said.error);
    const list = (side, caption, name) => ({ side, caption, labels: said.components, values: [...unpack(said[name]).data].map((value) => 100 * value), digits: 1, suffix: "" });
    bars($("effects"), [list("before", "exact effect, in points", "exact"), list("after", "first-order estimate, in points", "estimate")]);
    const agree = said.spearman === null ? "" : `; over all, effects and estimates have a rank correlation of ${said.spearman.toFixed(2)}`;
    $("agreement").textContent = `The ${said.components.length} largest effects of ${said.checked}${agree}.`;
  }

  async function copy(text, button) {
    const before = button.textContent;
    button.textContent = await navigator.clipboard.writeText(text).then(() => "Copied", () => "The browser does not allow it");
    setTimeout(() => (button.textContent = before), 1200);
  }

  function connect() {
    $("kinds").replaceChildren(...model.kinds.map((kind) => element("button", { type: "button", textContent: KINDS[kind].says, "data-kind": kind, onclick: () => choose(kind) })));
    const heads = Array.from({ length: model.heads }, (_, head) => head);
    $("heads").replaceChildren(...heads.map((head) => element("label", {}, element("input", { type: "checkbox", value: head, onchange: ticked }), ` ${head}`)));
    $("head").replaceChildren(element("option", { value: "mean", textContent: "mean of all" }), ...heads.map((head) => element("option", { value: head, textContent: head })));
    $("bos").querySelector('[value="model"]').disabled = !model.bos;
    let typing;
    $("prompt").oninput = () => {
      clearTimeout(typing);
      typing = setTimeout(() => { fresh = true; change({ prompt: $("prompt").value.replace(/\s+/g, " ").trim() }); }, TYPING);
    };
    $("bos").onchange = () => { fresh = true; change({ bos: $("bos").value }); };
    for (const name of ["token", "other"]) $(`slot-${name}`).onclick = () => { slot = name; slots(); };
    $("value").oninput = () => change({ value: Number($("value").value) });
    $("value-number").oninput = () => $("value-number").value !== "" && change({ value: Number($("value-number").value) });
    $("dim").oninput = () => $("dim").value !== "" && change({ dim: Number($("dim").value) });
    $("matrix").replaceChildren(...Object.keys(model.matrices).map((name) => element("option", { value: name, textContent: name })));
    $("matrix").onchange = () => change({ matrix: $("matrix").value });
    for (const id of ["row", "col"]) $(id).oninput = () => change({ [id]: $(id).value === "" ? null : Number($(id).value) });
    $("explain").onclick = explain;
    $("largest").onclick = () => change({ dim: largestDim() });
    const span = (moved) => {
      let [first, last] = [Number($("first").value), Number($("last").value)];
      if (first > last) moved === "first" ? (last = first) : (first = last);
      change({ layers: first === 0 && last === model.layers - 1 ? null : [first, last] });
    };
    for (const id of ["first", "last"]) $(id).oninput = () => span(id);
    function ticked() {
      const chosen = [...$("heads").querySelectorAll("input:checked")].map((box) => Number(box.value));
      change({ heads: chosen.length === model.heads ? null : chosen });
    }
    $("all-heads").onclick = () => change({ heads: null });
    $("no-heads").onclick = () => change({ heads: [] });
    $("difference").onchange = () => shown && draw();
    $("layer").oninput = () => change({ layer: Number($("layer").value) });
    $("head").onchange = () => change({ head: $("head").value === "mean" ? null : Number($("head").value) });
    $("key").onchange = () => change({ key: Number($("key").value) });
    $("link").hidden = !link.address;
    $("link").onclick = () => copy(link.address(), $("link"));
    for (const button of root.querySelectorAll("[data-copies]")) button.onclick = () => copy($(button.dataset.copies).textContent, button);
    $("continue").onclick = async () => {
      const asked = JSON.stringify(state), told = (name, textContent) => element("p", { className: `continued ${name}`, textContent });
      $("continued").replaceChildren(told("before", "writing …"));
      const { ok, said } = await ask("continue", state);
      if (JSON.stringify(state) !== asked) return; // of what is no longer on screen
      const texts = Object.entries(ok ? said : { before: said.error }).filter(([, text]) => text !== null);
      $("continued").replaceChildren(...texts.map(([name, text]) => told(name, ok ? `… ${text.trim() || "(the text ends here)"}` : text)));
    };
    $("save").onclick = async () => {
      $("saved").textContent = "saving …";
      const { ok, said } = await ask("save", state);
      $("saved").textContent = ok ? `Saved. ${said.command}` : said.error;
    };
    let resizing, width = null; // a notebook gives the page its width after it was filled
    new ResizeObserver(() => {
      if (page.clientWidth === width) return;
      width = page.clientWidth;
      fit();
      clearTimeout(resizing);
      resizing = setTimeout(() => shown && width && draw(), 150);
    }).observe(page);
    link.listen(async () => {
      const before = state;
      state = linked();
      if (JSON.stringify(state) === JSON.stringify(before)) return;
      await refresh();
      if (failed) state = before;
    });
  }

  const fit = () => page.classList.toggle("narrow", page.clientWidth <= NARROW);

  // The state that the link holds, on top of the one with which the page starts.
  function linked() {
    try {
      return { ...model.state, ...link.read() };
    } catch {
      tell("The link holds no state that can be read, so the page shows its first one.", true);
      return { ...model.state };
    }
  }

  try {
    fit();
    model = (await ask("model")).said;
    $("model").textContent = `${model.title}: ${model.layers} layers of ${model.heads} heads, ${model.width} dims`;
    state = linked();
    connect();
    await refresh();
    if (!shown) { // the link does not fit this model
      const said = $("status").textContent;
      state = { ...model.state };
      await refresh();
      tell(said, true);
    }
  } catch (error) {
    tell(`The page cannot start: ${error.message}`, true);
  }
  return model;
}
