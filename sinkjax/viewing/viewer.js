// Maps of a prompt before and after an edit, for reports, notebooks and the explorer. Text reaches the page by textContent or
// fillText only, so that no token is ever read as HTML.
export const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
export const INK = "#1b1f24", SOFT = "#57606a", EDITED = "#b04a00";
const HIDDEN = [238, 238, 238]; // the colour of a cell without a value
const MISSING = 255, DECADES = 1e4; // as in maps.py
const LARGEST_CELL = 28, SMALLEST_LABEL = 11, LONGEST_LABEL = 76, BESIDE = 640, GAP = 28; // pixels; BESIDE as in viewer.css
const VIRIDIS = ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"].map((hex) =>
  [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const BLUE_TO_RED = [[33, 102, 172], [255, 255, 255], [178, 24, 43]];

export const visible = (token) => (token.trim() === "" ? token.replaceAll("\n", "↵").replaceAll(" ", "·") || "∅" : token.trim());
export const short = (text, letters = 9) => (text.length > letters ? text.slice(0, letters - 1) + "…" : text);

export function number(value) {
  if (value === null || Number.isNaN(value)) return "none";
  const size = Math.abs(value);
  if (size && size < 5e-4) return value.toExponential(1);
  return value.toLocaleString("en-US", { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3 });
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) key in made ? (made[key] = value) : made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function mixed(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
  return stops[low].map((part, index) => Math.round(part + (stops[low + 1][index] - part) * (place - low)));
}

// A colour scale: a square root keeps the differences of small weights, a logarithm those of activations.
export function scaleOf(low, high, log) {
  if (!log) {
    const ticks = [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1].map((part) => part * 10 ** Math.ceil(Math.log10(high)));
    return { log, ticks: ticks.filter((tick) => tick <= high), share: (value) => Math.sqrt(Math.max(value, 0) / high) };
  }
  const marks = high > 100 * low ? [1] : [1, 2, 5], ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) ticks.push(...marks.map((mark) => mark * 10 ** power));
  const share = (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low);
  return { log, ticks: ticks.filter((tick) => tick >= low && tick <= high), share };
}

// One scale for arrays of numbers that are compared. least: a value that its upper end must reach.
export function scaleFor(arrays, log, least = 0) {
  let high = least, low = Infinity;
  for (const { data } of arrays) for (const value of data) if (value > 0) { high = Math.max(high, value); low = Math.min(low, value); }
  high = high || 1;
  return scaleOf(Math.max(Math.min(low, high / 10), high / DECADES), high, log);
}

function pen(width, height) {
  const canvas = document.createElement("canvas"), ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  context.scale(ratio, ratio);
  Object.assign(context, { font: `11px ${FONT}`, textBaseline: "middle", imageSmoothingEnabled: false });
  return context;
}

function turned(context, x, y, text) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.fillText(text, 0, 0);
  context.restore();
}

// A bar of colours with ticks, each a place from 0 to 1 and a text.
function colours(stops, ticks, width, { quantity, log }) {
  const context = pen(width + 40, 40);
  for (let x = 0; x < width; x++) { context.fillStyle = `rgb(${mixed(stops, x / (width - 1))})`; context.fillRect(20 + x, 14, 1.5, 10); }
  context.fillStyle = SOFT;
  context.fillText(quantity + (log ? ", logarithmic" : ""), 20, 6);
  context.textAlign = "center";
  let free = -Infinity;
  for (const [share, text] of ticks) {
    const x = 20 + share * width, half = context.measureText(text).width / 2;
    context.fillRect(x - 0.5, 24, 1, 3);
    if (x - half > free) { context.fillText(text, x, 33); free = x + half + 4; }
  }
  context.canvas.setAttribute("role", "img");
  context.canvas.setAttribute("aria-label", `colour scale of ${quantity}, from ${ticks[0][1]} to ${ticks.at(-1)[1]}`);
  return context.canvas;
}

// only: the name of the one map that the scale is of, where the other has its own.
export function legend(place, scale, quantity, only) {
  const ticks = scale.ticks.map((tick) => [scale.share(tick), number(tick)]);
  place.replaceChildren(colours(VIRIDIS, ticks, 300, { quantity: only ? `${quantity}, ${only}` : quantity, log: scale.log }));
}

// How the second of two maps differs from the first, on a scale with 0 in its middle: after minus before, or the logarithm of their ratio.
function changed([before, after], { log }, rows, columns) {
  const of = (row, column) => (log ? Math.log10(after.of(row, column) / before.of(row, column)) : after.of(row, column) - before.of(row, column));
  let most = 0;
  rows.forEach((_, row) => columns.forEach((_, column) => { if (Number.isFinite(of(row, column))) most = Math.max(most, Math.abs(of(row, column))); }));
  const name = `${after.name} ${log ? "÷" : "−"} ${before.name}`, end = number(log ? 10 ** most : most);
  const ticks = [[0, `${log ? "1/" : "−"}${end}`], [0.5, log ? "1" : "0"], [1, end]];
  return { of, name: most ? name : `${name}: no difference`, key: most ? [colours(BLUE_TO_RED, ticks, 240, { quantity: name, log })] : [],
    colour: (value) => mixed(BLUE_TO_RED, 0.5 + value / (2 * (most || 1))) };
}

// One or two maps on one scale, beside each other where there is room; pointing at a cell of one shows the values of both.
//   sides       the name of each map and of(row, column), its numbers; a cell is empty if they are NaN, or 0 above a square's diagonal
//   rows, columns   labels; a square map's first row is on top, another's at the bottom
//   edited      sets of rows and columns whose labels are marked
//   difference  whether the second map is drawn as its difference from the first
//   none        the text in place of a second map
//   say, tell   functions that name a cell and write a value
export function maps(place, { sides, scale, title, rows, columns, rowTitle, columnTitle, square, edited, difference, none = "", say, tell = number }) {
  const [height, width] = [rows.length, columns.length], measure = pen(1, 1), cells = [];
  const room = (sides.length > 1 || none) && place.clientWidth >= BESIDE ? (place.clientWidth - GAP) / 2 : place.clientWidth;
  const widest = (labels) => Math.min(LONGEST_LABEL, Math.max(0, ...labels.map((label) => measure.measureText(short(label)).width)));
  const left = Math.round(26 + widest(rows)), bottom = 26 + widest(columns);
  const cell = square ? Math.min((Math.min(room, BESIDE) - left - 4) / width, LARGEST_CELL) : (room - left - 4) / width;
  const tall = square ? cell : Math.min(Math.max(220 / height, 9), 22), line = (row) => (square ? row : height - 1 - row);
  const empty = (value, row, column) => Number.isNaN(value) || (square && column > row && !value);
  const step = (size) => Math.max(1, Math.ceil(SMALLEST_LABEL / size));

  function draw({ of, name, key = [], colour = (value) => mixed(VIRIDIS, scale.share(value)) }, side) {
    const context = pen(left + cell * width + 4, tall * height + bottom + 4), { canvas } = context;
    const small = element("canvas", { width, height }), paint = small.getContext("2d"), image = paint.createImageData(width, height);
    for (let row = 0; row < height; row++) for (let column = 0; column < width; column++) {
      const value = of(row, column);
      image.data.set([...(empty(value, row, column) ? HIDDEN : colour(value)), 255], 4 * (line(row) * width + column));
    }
    paint.putImageData(image, 0, 0);
    context.drawImage(small, left, 2, cell * width, tall * height);
    const label = (text, marked) => {
      Object.assign(context, { fillStyle: marked ? EDITED : INK, font: `${marked ? "bold " : ""}11px ${FONT}`, textAlign: "right" });
      return short(text);
    };
    for (let row = 0; row < height; row += step(tall)) context.fillText(label(rows[row], edited?.rows.has(row)), left - 5, 2 + (line(row) + 0.5) * tall);
    for (let column = 0; column < width; column += step(cell)) turned(context, left + (column + 0.5) * cell, 7 + height * tall, label(columns[column], edited?.columns.has(column)));
    Object.assign(context, { fillStyle: SOFT, font: `11px ${FONT}`, textAlign: "center" });
    context.fillText(columnTitle, left + (cell * width) / 2, tall * height + bottom - 3);
    turned(context, 8, 2 + (tall * height) / 2, rowTitle);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title}, ${name}: ${rowTitle} by ${columnTitle}`);
    const box = element("div", { className: "cell", hidden: true });
    cells.push({ box, canvas });
    canvas.onpointermove = (event) => {
      const at = canvas.getBoundingClientRect(), column = Math.floor((event.clientX - at.left - left) / cell);
      const row = line(Math.floor((event.clientY - at.top - 2) / tall)), inside = row >= 0 && row < height && column >= 0 && column < width;
      for (const { box, canvas } of cells) {
        box.hidden = !inside;
        Object.assign(box.style, { left: `${canvas.offsetLeft + left + column * cell}px`, top: `${canvas.offsetTop + 2 + line(row) * tall}px`, width: `${cell}px`, height: `${tall}px` });
      }
      tip(inside && !sides.every((side) => Number.isNaN(side.of(row, column))) ? [say(row, column), ...sides.map((side) => `${side.name} ${tell(side.of(row, column))}`)].join("\n") : "", event);
    };
    canvas.onpointerleave = (event) => { for (const { box } of cells) box.hidden = true; tip("", event); };
    return element("figure", { className: side ? "after" : "before" }, element("figcaption", { textContent: name }), canvas, box, ...key);
  }

  const drawn = difference && sides.length > 1 ? [sides[0], changed(sides, scale, rows, columns)] : sides;
  place.replaceChildren(...drawn.map(draw), ...(none ? [element("p", { className: "none", textContent: none })] : []));
}

// Beside the pointer, within the page and the window. Not `fixed`: notebooks move their cells by transforms.
export function tip(text, event) {
  const box = event.target.getRootNode().getElementById("tip");
  box.hidden = text === "";
  box.textContent = text;
  if (text === "") return;
  const { width, height } = box.getBoundingClientRect(), page = box.parentElement.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, page.right - width - 8) - page.left)}px`;
  box.style.top = `${Math.min(event.clientY + 14, window.innerHeight - height - 8) - page.top}px`;
}

// A choice among labels, with buttons to step through them.
function stepper({ name, labels, start }, set) {
  const select = element("select", { name, onchange: () => set(select.selectedIndex) }, ...labels.map((text, value) => element("option", { value, textContent: text })));
  const steps = [[-1, "‹", "previous"], [1, "›", "next"]].map(([by, textContent, what]) => element("button", { type: "button", textContent, title: `${what} ${name}`,
    onclick: () => set((select.selectedIndex = (select.selectedIndex + by + labels.length) % labels.length)) }));
  select.selectedIndex = start;
  return element("span", {}, element("label", {}, name, select), ...steps);
}

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
}

// A panel of maps.py: its value for a run and the present choices, and its scale.
async function decoded({ choices, rows, columns, low, high, log, data }, sizes, chosen) {
  const codes = await inflate(data);
  const values = Array.from({ length: MISSING + 1 }, (_, code) => (code === MISSING ? NaN : log ? low * (high / low) ** (code / (MISSING - 1)) : high * (code / (MISSING - 1)) ** 2));
  const of = (run, row, column) => values[codes[(choices.reduce((at, name) => at * sizes[name] + chosen[name], run) * rows + row) * columns + column]];
  return { of, scale: scaleOf(low, high, log), tell: (value) => (log && value === low ? "at most " : "") + number(value) };
}

// Fills a place with the maps whose data it holds as JSON (maps.py).
async function show(place) {
  const { runs, tokens, choices, panels } = JSON.parse(place.querySelector("script").textContent), chosen = {}, sizes = {}, drawn = [];
  const compared = runs.length > 2 ? [{ name: "compare", labels: runs, start: 0 }, { name: "with", labels: runs, start: 1 }] : [];
  const body = element("div"), top = element("div", { className: "choices" });
  for (const choice of [...compared, ...choices]) {
    [chosen[choice.name], sizes[choice.name]] = [choice.start, choice.labels.length];
    if (choice.labels.length > 1) top.append(stepper(choice, (index) => { chosen[choice.name] = index; draw(); }));
  }
  const difference = element("input", { type: "checkbox", onchange: () => draw() });
  if (runs.length > 1) top.append(element("label", {}, difference, " difference"));
  for (const panel of panels) {
    const scale = element("div", { className: "legend" }), pair = element("div", { className: "pair" });
    body.append(element("div", { className: "title" }, element("h3", { textContent: panel.title }), scale), pair);
    drawn.push({ panel, pair, place: scale, ...(await decoded(panel, sizes, chosen)) });
  }
  function draw() {
    const texts = tokens[chosen.prompt ?? 0].map(visible), shown = compared.length ? [chosen.compare, chosen.with] : runs.map((_, run) => run);
    for (const { panel, pair, place, of, scale, tell } of drawn) {
      legend(place, scale, panel.quantity, difference.checked && (runs[shown[0]] || ""));
      const labels = (axis, size) => (axis.includes("token") ? texts.slice(0, size) : Array.from({ length: size }, (_, index) => String(index)));
      const rows = labels(panel.row, panel.rows), columns = labels(panel.column, panel.columns), square = panel.row.includes("token");
      const said = (axis, index) => `${axis} ${index}` + (axis.includes("token") ? ` “${texts[index]}”` : "");
      maps(pair, { rows, columns, square, scale, tell, title: panel.title, rowTitle: panel.row, columnTitle: panel.column, difference: difference.checked,
        sides: shown.map((run) => ({ name: runs[run] || panel.quantity, of: (row, column) => of(run, row, column) })), say: (row, column) => `${said(panel.row, row)}\n${said(panel.column, column)}` });
    }
    place.dataset.ready = JSON.stringify(chosen);
  }
  place.querySelector(".place").replaceChildren(top, body);
  let width = 0; // a notebook or a folded part gives a place its width later
  new ResizeObserver(() => { if (place.clientWidth !== width) { width = place.clientWidth; requestAnimationFrame(draw); } }).observe(place);
}

// Draws the maps of each place when it comes into sight.
export function watch() {
  const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
    seen.unobserve(target);
    show(target).catch((error) => { target.querySelector(".place").textContent = `These maps cannot be shown: ${error.message}`; throw error; });
  }), { rootMargin: "600px" });
  document.querySelectorAll(".maps").forEach((place) => seen.observe(place));
}
