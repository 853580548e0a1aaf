// Draws lines and bars. Text reaches the page by textContent alone, so that no token is ever read as HTML.
import { element, number, short, tip } from "./viewer.js";

const LINE = "#d8dee4", COLOURS = { before: "#0072b2", after: "#d55e00" };

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
