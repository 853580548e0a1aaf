// Draws maps, lines and bars. Text reaches the page by textContent or fillText alone, so that no token is ever read as HTML.
const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
const INK = "#1b1f24", SOFT = "#57606a", LINE = "#d8dee4", MISSING = "#eeeeee";
const COLOURS = { before: "#0072b2", after: "#d55e00", edited: "#b04a00" };
const DECADES = 1e4; // the range of a logarithmic scale, as in reports
const LARGEST_CELL = 28, SMALLEST_LABEL = 11; // pixels
const VIRIDIS = ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"].map((hex) =>
  [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

export const visible = (token) => (token.trim() === "" ? token.replaceAll("\n", "↵").replaceAll(" ", "·") : token.trim());
const short = (text, letters = 9) => (text.length > letters ? text.slice(0, letters - 1) + "…" : text);

export function number(value) {
  if (value === null || Number.isNaN(value)) return "none";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) key in made ? (made[key] = value) : made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function viridis(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((part, index) => Math.round(part + (VIRIDIS[low + 1][index] - part) * (place - low)));
  return `rgb(${mixed.join(" ")})`;
}

function diverging(share) {
  const place = Math.min(Math.max(share, 0), 1), side = place < 0.5 ? [33, 102, 172] : [178, 24, 43], whiteness = 1 - Math.abs(2 * place - 1);
  return `rgb(${side.map((part) => Math.round(part + (255 - part) * whiteness)).join(" ")})`;
}

// After minus before, for a logarithmic scale the logarithm of their ratio; 0 is in the middle of its colours.
export function changeOf(before, after, { logarithmic }) {
  const data = before.data.map((value, index) => (logarithmic ? Math.log10(after.data[index] / value) : after.data[index] - value));
  const most = Math.max(0, ...[...data].filter(Number.isFinite).map(Math.abs));
  const words = logarithmic ? `after ÷ before, blue 1/${number(10 ** most)}, red ${number(10 ** most)}` : `after − before, blue −${number(most)}, red ${number(most)}`;
  return { shape: before.shape, data, words: most ? words : "after − before: no difference", colour: (value) => diverging(0.5 + value / (2 * (most || 1))) };
}

// One scale for all that is compared. A root keeps the differences of small weights; a logarithm those of activations.
export function scaleOf(arrays, logarithmic, least = 0) {
  let high = least, low = Infinity;
  for (const { data } of arrays) for (const value of data) if (value > 0) { high = Math.max(high, value); low = Math.min(low, value); }
  high = high || 1;
  if (!logarithmic) {
    const ticks = [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1].map((mark) => mark * high);
    return { share: (value) => Math.sqrt(Math.max(value, 0) / high), ticks };
  }
  low = Math.max(Math.min(low, high / 10), high / DECADES);
  const marks = high > 100 * low ? [1] : [1, 2, 5], ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) ticks.push(...marks.map((mark) => mark * 10 ** power));
  return { share: (value) => Math.log(Math.max(value, low) / low) / Math.log(high / low), ticks: ticks.filter((tick) => tick >= low && tick <= high), logarithmic };
}

function pen(width, height) {
  const canvas = document.createElement("canvas"), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = `11px ${FONT}`;
  context.textBaseline = "middle";
  return { canvas, context };
}

export function legend(place, scale, quantity) {
  const width = 300, { canvas, context } = pen(width + 40, 40);
  for (let x = 0; x < width; x++) { context.fillStyle = viridis(x / (width - 1)); context.fillRect(20 + x, 14, 1.5, 10); }
  context.fillStyle = SOFT;
  context.fillText(quantity + (scale.logarithmic ? ", logarithmic" : ""), 20, 6);
  context.textAlign = "center";
  let free = -Infinity;
  for (const tick of scale.ticks) {
    const x = 20 + scale.share(tick) * width, text = number(tick), half = context.measureText(text).width / 2;
    context.fillRect(x - 0.5, 24, 1, 3);
    if (x - half > free) { context.fillText(text, x, 33); free = x + half + 4; }
  }
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `colour scale of ${quantity}, from ${number(scale.ticks[0])} to ${number(scale.ticks.at(-1))}`);
  place.replaceChildren(canvas);
}

// Two maps beside each other on one scale, or the second as a change; pointing at a cell of one shows both values.
export function maps(place, { before, after, change, scale, rows, columns, rowTitle, columnTitle, square, editedRows, editedColumns, say }) {
  const [height, width] = before.shape, gap = window.innerWidth > 700 ? 28 : 0;
  const room = place.clientWidth / (gap ? 2 : 1) - gap / 2;
  const measure = pen(1, 1).context;
  const widest = (labels) => Math.max(0, ...labels.map((label) => measure.measureText(short(label)).width));
  const ratio = window.devicePixelRatio || 1, snapped = (length) => Math.round(length * ratio) / ratio;
  const left = Math.round(26 + Math.min(widest(rows), 76)), bottom = 26 + Math.min(widest(columns), 76);
  const cell = Math.min((room - left - 4) / width, square ? LARGEST_CELL : Infinity);
  const tall = square ? cell : Math.min(Math.max(220 / height, 9), 22);
  const cells = [];
  const colour = (value) => viridis(scale.share(value));
  const draw = (values, name, words = name, colourOf = colour) => {
    const { canvas, context } = pen(left + cell * width + 4, tall * height + bottom + 4);
    for (let row = 0; row < height; row++) for (let column = 0; column < width; column++) {
      const value = values.data[row * width + column];
      const hidden = square && column > row && !value;
      context.fillStyle = Number.isNaN(value) || hidden ? MISSING : colourOf(value);
      const [x, y] = [snapped(column * cell), snapped(row * tall)]; // on whole pixels, so that no seam shows
      context.fillRect(left + x, 2 + y, snapped((column + 1) * cell) - x, snapped((row + 1) * tall) - y);
    }
    context.textAlign = "right";
    const label = (text, index, edited) => {
      context.fillStyle = edited.has(index) ? COLOURS.edited : INK;
      context.font = `${edited.has(index) ? "bold " : ""}11px ${FONT}`;
      return short(text);
    };
    const step = (size) => Math.max(1, Math.ceil(SMALLEST_LABEL / size));
    for (let row = 0; row < height; row += step(tall)) context.fillText(label(rows[row], row, editedRows), left - 5, 2 + (row + 0.5) * tall);
    for (let column = 0; column < width; column += step(cell)) {
      context.save();
      context.translate(left + (column + 0.5) * cell, 2 + height * tall + 5);
      context.rotate(-Math.PI / 2);
      context.fillText(label(columns[column], column, editedColumns), 0, 0);
      context.restore();
    }
    context.font = `11px ${FONT}`;
    context.fillStyle = SOFT;
    context.textAlign = "center";
    context.fillText(columnTitle, left + (cell * width) / 2, tall * height + bottom - 3);
    context.save();
    context.translate(8, 2 + (tall * height) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(rowTitle, 0, 0);
    context.restore();
    const box = element("div", { className: "cell", hidden: true }), figure = element("figure", { className: name });
    figure.append(element("figcaption", { textContent: words }), canvas, box);
    cells.push({ box, canvas });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${place.parentElement.querySelector("h2").textContent}, ${words}: ${rowTitle} by ${columnTitle}`);
    canvas.onpointermove = (event) => {
      const at = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - at.left - left) / cell), row = Math.floor((event.clientY - at.top - 2) / tall);
      const inside = row >= 0 && row < height && column >= 0 && column < width;
      const value = (array) => (array === null ? null : array.data[row * width + column]);
      for (const { box, canvas } of cells) {
        box.hidden = !inside;
        box.style.left = `${canvas.offsetLeft + left + column * cell}px`;
        box.style.top = `${canvas.offsetTop + 2 + row * tall}px`;
        box.style.width = `${cell}px`;
        box.style.height = `${tall}px`;
      }
      tip(inside ? `${say(row, column)}\nbefore ${number(value(before))}` + (after ? `\nafter ${number(value(after))}` : "") : "", event);
    };
    canvas.onpointerleave = (event) => { for (const { box } of cells) box.hidden = true; tip("", event); };
    return figure;
  };
  place.replaceChildren(draw(before, "before"), after ? (change ? draw(change, "after", change.words, change.colour) : draw(after, "after")) : element("p", { className: "none", textContent: "Choose an edit to see what it changes." }));
}

// Beside the pointer, within the page and the window. Not `fixed`: notebooks move their cells by transforms.
function tip(text, event) {
  const box = event.target.getRootNode().getElementById("tip");
  box.hidden = text === "";
  box.textContent = text;
  if (text === "") return;
  const { width, height } = box.getBoundingClientRect(), page = box.parentElement.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, page.right - width - 8) - page.left)}px`;
  box.style.top = `${Math.min(event.clientY + 14, window.innerHeight - height - 8) - page.top}px`;
}

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Lines of both states in one frame. labels: of the points, vertical if they are tokens.
export function lines(place, { before, after, labels, tokens, top, ticks, unit, suffix, title, say }) {
  const width = Math.max(place.clientWidth, 260), left = 44, bottom = tokens ? 76 : 40, height = 190 + bottom, right = 10;
  const count = labels.length, gap = (width - left - right) / Math.max(count, 1);
  const x = (index) => left + (index + 0.5) * gap, y = (value) => 8 + (1 - value / top) * 182;
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const tick of ticks) {
    svg.append(shape("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: LINE }));
    svg.append(shape("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end", class: "soft" }, number(tick)));
  }
  svg.append(shape("text", { x: 0, y: 0, "text-anchor": "middle", class: "soft", transform: `translate(10 ${y(top / 2)}) rotate(-90)` }, unit));
  const step = Math.max(1, Math.ceil((tokens ? 13 : 24) / gap));
  labels.forEach((label, index) => {
    if (index % step) return;
    const turned = tokens ? `translate(${x(index) + 4} 200) rotate(-90)` : `translate(${x(index)} 206)`;
    svg.append(shape("text", { x: 0, y: 0, "text-anchor": tokens ? "end" : "middle", transform: turned }, tokens ? short(label) : label));
  });
  if (!tokens) svg.append(shape("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle", class: "soft" }, "layer"));
  for (const [name, values] of [["before", before], ["after", after]]) {
    if (!values) continue;
    const points = [...values].map((value, index) => [x(index), y(value)]).filter(([, at]) => !Number.isNaN(at));
    svg.append(shape("polyline", { points: points.map((point) => point.join(",")).join(" "), fill: "none", stroke: COLOURS[name], "stroke-width": 1.8,
      ...(name === "before" ? { "stroke-dasharray": "5 3" } : {}) }));
    if (gap > 7) for (const [cx, cy] of points) svg.append(shape("circle", { cx, cy, r: name === "before" ? 4 : 2.6, fill: name === "before" ? "#fff" : COLOURS[name], stroke: COLOURS[name], "stroke-width": 1.6 }));
  }
  svg.onpointermove = (event) => {
    const index = Math.floor((event.clientX - svg.getBoundingClientRect().left - left) / gap);
    const inside = index >= 0 && index < count;
    tip(inside ? `${say(index)}\nbefore ${number(before[index])}${suffix}` + (after ? `\nafter ${number(after[index])}${suffix}` : "") : "", event);
  };
  svg.onpointerleave = (event) => tip("", event);
  place.replaceChildren(svg);
}

// Lists of labelled numbers on one scale, each as a bar; the bar of a negative number is hollow.
export function bars(place, lists) {
  const top = Math.max(...lists.flatMap(({ values }) => [...values].map(Math.abs)));
  place.replaceChildren(...lists.map(({ side, caption, labels, values, digits, suffix }) => {
    const rows = element("div", { className: "words" });
    labels.forEach((label, index) => {
      const bar = element("span", { className: values[index] < 0 ? "bar negative" : "bar" });
      bar.style.width = `${(100 * Math.abs(values[index])) / (top || 1)}%`;
      rows.append(element("span", { className: "word", textContent: label }), bar,
        element("span", { className: "chance", textContent: `${(Number(values[index].toFixed(digits)) || 0).toFixed(digits).replace("-", "−")}${suffix}` }));
    });
    return element("figure", { className: side }, element("figcaption", { textContent: caption }), rows);
  }));
}
