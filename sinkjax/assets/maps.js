// Draws the panels of `sinkjax.maps.Maps`: each run's map side by side, one colour scale a panel, token by token.
"use strict";
(async () => {
  const MISSING = 255, MARK = "#d55e00", EMPTY = "#eeeeee";
  const STOPS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
  const view = JSON.parse(document.querySelector("script[type='application/json']").textContent);
  const main = document.querySelector("main");
  const visible = (token) => (token.trim() === "" ? token.replaceAll("\n", "↵").replaceAll(" ", "·") || "∅" : token.replaceAll("\n", "↵"));
  const make = (tag, parent, text = "", name = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    made.className = name;
    parent.append(made);
    return made;
  };

  async function inflate(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  function colour(code) {
    const place = (code / (MISSING - 1)) * (STOPS.length - 1), left = Math.min(Math.floor(place), STOPS.length - 2);
    return STOPS[left].map((from, channel) => Math.round(from + (place - left) * (STOPS[left + 1][channel] - from)));
  }

  const short = (number) => Number(number.toPrecision(3)).toLocaleString("en-US", { maximumSignificantDigits: 3 });
  function value(code, scale) {
    if (scale.log && code === 0) return `at most ${short(scale.low)}`;
    const share = code / (MISSING - 1);
    return short(scale.log ? scale.low * (scale.high / scale.low) ** share : scale.high * share ** 2);
  }

  // What is chosen: an index for each name of a choice, and the token whose row is shown in the line of tokens.
  const chosen = {}, labels = {};
  for (const panel of view.panels) for (const choice of panel.choices) (chosen[choice.name] = 0), (labels[choice.name] = choice.labels);
  if ("layer" in labels) chosen.layer = Math.floor(labels.layer.length / 2); // sinks are rare in the first layers
  let token = view.tokens.length - 1;

  const top = make("div", main, "", "choices");
  function stepper(name, options, set) {
    const box = make("span", top);
    make("label", box, name);
    const select = make("select", box);
    select.name = name;
    options.forEach((text, index) => select.add(new Option(text, index)));
    const show = (index) => ((select.selectedIndex = index), set(index), draw());
    select.onchange = () => show(select.selectedIndex);
    for (const [by, sign] of [[-1, "‹"], [1, "›"]]) {
      const button = make("button", box, sign);
      button.title = `${by < 0 ? "previous" : "next"} ${name}`;
      button.onclick = () => show((select.selectedIndex + by + options.length) % options.length);
    }
    return select;
  }
  for (const name of Object.keys(labels)) if (labels[name].length > 1) stepper(name, labels[name], (index) => (chosen[name] = index)).selectedIndex = chosen[name];
  const named = view.tokens.map((text, index) => `${index} ${visible(text)}`);
  const query = stepper("token", named, (index) => (token = index));
  query.selectedIndex = token;

  // A line of tokens for each run, shaded by what the chosen token attends to.
  main.style.maxWidth = `${Math.max(2, view.runs.length) * 396 - 16}px`;
  const lines = view.runs.map((run) => {
    const line = make("div", main, "", "tokens");
    make("span", line, run).title = run;
    const words = make("div", line);
    view.tokens.forEach((text, index) => {
      make("button", words, visible(text)).onclick = () => ((query.selectedIndex = token = index), draw());
    });
    return words;
  });

  const panels = [];
  for (const panel of view.panels) {
    const codes = await inflate(panel.data);
    make("h3", main, panel.title);
    const runs = make("div", main, "", "runs");
    const foot = make("div", main, "", "foot"), said = make("span", foot), legend = make("span", foot);
    make("span", legend, panel.scale.log ? `${short(panel.scale.low)}` : "0");
    make("span", legend, "", "bar").style.background = `linear-gradient(90deg, ${STOPS.map((stop) => `rgb(${stop})`)})`;
    make("span", legend, short(panel.scale.high) + (panel.scale.log ? " (log)" : " (square root)"));
    const name = (axis, index) => (axis.includes("token") ? `${axis} ${named[index]}` : `${axis} ${index}`);
    const of = (run, row, column) => {
      const map = panel.choices.reduce((index, choice) => index * choice.labels.length + chosen[choice.name], run);
      return codes[(map * panel.rows + row) * panel.columns + column];
    };
    const canvases = view.runs.map((run, number) => {
      const figure = make("figure", runs);
      make("figcaption", figure, run).title = run;
      const canvas = make("canvas", figure), scale = Math.max(1, Math.floor(760 / panel.columns));
      canvas.width = panel.columns * scale;
      const height = panel.row.includes("token") ? scale : Math.max(2, Math.floor(340 / panel.rows));
      canvas.height = panel.rows * height;
      const at = (event) => {
        const box = canvas.getBoundingClientRect();
        const row = Math.floor(((event.clientY - box.top) / box.height) * panel.rows);
        const column = Math.floor(((event.clientX - box.left) / box.width) * panel.columns);
        return [panel.upwards ? panel.rows - 1 - row : row, column].map((place, axis) => Math.max(0, Math.min(place, [panel.rows, panel.columns][axis] - 1)));
      };
      canvas.onmousemove = (event) => {
        const [row, column] = at(event);
        const each = view.runs.map((run, other) => [run, of(other, row, column)]).filter((entry) => entry[1] !== MISSING);
        said.textContent = each.length
          ? `${name(panel.row, row)}, ${name(panel.column, column)}: ${each.map(([run, code]) => `${run} ${value(code, panel.scale)}`).join(", ")}`
          : "";
      };
      canvas.onclick = (event) => ((query.selectedIndex = token = at(event)[panel.row.includes("token") ? 0 : 1]), draw());
      return { canvas, number, scale, height };
    });
    panels.push({ panel, canvases, of });
  }
  make("div", main, view.said, "foot");

  function draw() {
    const read = panels.find(({ panel }) => panel.row === "query token");
    lines.forEach((line, run) =>
      [...line.children].forEach((button, index) => {
        const code = read ? read.of(run, token, index) : MISSING, seen = code !== MISSING;
        button.classList.toggle("chosen", index === token);
        button.style.background = seen ? `rgb(${colour(code)})` : "";
        button.style.color = seen && code < 150 ? "#fff" : "";
      }));
    for (const { panel, canvases, of } of panels) {
      for (const { canvas, number, scale, height } of canvases) {
        const paint = canvas.getContext("2d");
        for (let row = 0; row < panel.rows; row++) {
          for (let column = 0; column < panel.columns; column++) {
            const code = of(number, row, column);
            paint.fillStyle = code === MISSING ? EMPTY : `rgb(${colour(code)})`;
            paint.fillRect(column * scale, (panel.upwards ? panel.rows - 1 - row : row) * height, scale, height);
          }
        }
        paint.strokeStyle = MARK;
        paint.lineWidth = 3;
        if (panel.row.includes("token")) paint.strokeRect(1.5, token * height + 1.5, (token + 1) * scale - 3, height - 3);
        else paint.strokeRect(token * scale + 1.5, 1.5, scale - 3, canvas.height - 3);
      }
    }
    document.body.dataset.ready = `${token} ${JSON.stringify(chosen)}`;
  }
  draw();
})();
