// Shows one map of each view at a time. A view is a figure that holds its data as JSON (sinkjax/report/viewer.py).
"use strict";
(() => {
  const MISSING = 255;
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  const plain = (text) => String(text).replace(/[&<>"']/g, (character) => entities[character]);
  const visible = (token) => (token.trim() === "" ? token.replaceAll("\n", "↵").replaceAll(" ", "·") : token.trim());

  async function inflate(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // The number behind a code of 8 bits, in words.
  function value(code, scale) {
    const share = code / (MISSING - 1);
    const number = scale.log ? scale.low * (scale.high / scale.low) ** share : scale.high * share ** 2;
    const digits = number >= 100 ? 0 : number >= 10 ? 1 : number >= 1 ? 2 : 3;
    const bound = scale.log && code === 0 ? "at most " : "";
    return bound + number.toLocaleString("en-US", { maximumFractionDigits: digits });
  }

  function controls(view, chosen, redraw) {
    const box = document.createElement("div");
    box.className = "choices";
    view.choices.forEach((choice, axis) => {
      const label = document.createElement("label");
      const select = document.createElement("select");
      select.name = choice.name;
      choice.labels.forEach((text, index) => select.add(new Option(text, index)));
      select.selectedIndex = choice.start;
      const step = (by, sign) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = sign;
        button.title = `${by < 0 ? "previous" : "next"} ${choice.name}`;
        button.onclick = () => show((chosen[axis] + by + choice.labels.length) % choice.labels.length);
        return button;
      };
      const show = (index) => {
        chosen[axis] = index;
        select.selectedIndex = index;
        redraw();
      };
      select.onchange = () => show(select.selectedIndex);
      label.append(choice.name, select);
      const row = document.createElement("span");
      row.append(label);
      if (choice.labels.length > 1) row.append(step(-1, "‹"), step(1, "›"));
      box.append(row);
    });
    return box;
  }

  async function start(figure) {
    const view = JSON.parse(figure.querySelector("script").textContent);
    const codes = await inflate(view.data);
    const chosen = view.choices.map((choice) => choice.start);
    const plot = document.createElement("div");
    plot.className = "map";
    const prompt = view.choices.findIndex((choice) => choice.name === "prompt");

    function draw() {
      const map = chosen.reduce((index, entry, axis) => index * view.choices[axis].labels.length + entry, 0);
      const tokens = view.tokens[prompt < 0 ? 0 : chosen[prompt]].map(visible);
      const rows = Array.from({ length: view.rows }, (_, row) => row);
      const columns = Array.from({ length: view.columns }, (_, column) => column);
      const code = (row, column) => codes[(map * view.rows + row) * view.columns + column];
      const named = (axis, index, of_tokens) => `${plain(axis)} ${index}${of_tokens ? ` “${plain(tokens[index])}”` : ""}`;
      const words = (row, column) =>
        code(row, column) === MISSING
          ? ""
          : `${named(view.row_title, row, view.row_tokens)}<br>${named(view.column_title, column, true)}<br>` +
            `${plain(view.quantity)}: ${value(code(row, column), view.scale)}`;
      const short = (token) => plain(token.length > 9 ? token.slice(0, 8) + "…" : token);
      const ticks = (of_tokens) =>
        of_tokens ? { tickvals: columns, ticktext: tokens.map(short) } : { dtick: view.rows > 12 ? 5 : 1, tick0: 0 };
      const heat = {
        type: "heatmap",
        z: rows.map((row) => columns.map((column) => (code(row, column) === MISSING ? null : code(row, column)))),
        text: rows.map((row) => columns.map((column) => words(row, column))),
        hovertemplate: "%{text}<extra></extra>",
        hoverongaps: false,
        zmin: 0,
        zmax: MISSING - 1,
        colorscale: "Viridis",
        colorbar: { title: { text: plain(view.quantity), side: "right" }, tickvals: view.scale.ticks.map((tick) => tick[0]),
          ticktext: view.scale.ticks.map((tick) => tick[1]), thickness: 14, outlinewidth: 0 },
      };
      const font = { family: "system-ui, -apple-system, Segoe UI, Noto Sans, DejaVu Sans, sans-serif", size: 12, color: "#1b1f24" };
      const axis = { showgrid: false, zeroline: false, ticks: "", tickfont: { size: 10 }, automargin: true, fixedrange: true };
      const layout = {
        font,
        height: 560,
        margin: { l: 60, r: 20, t: 12, b: 60 },
        plot_bgcolor: "#eeeeee",
        paper_bgcolor: "#ffffff",
        xaxis: { ...axis, title: { text: plain(view.column_title) + " token" }, tickangle: -90, ...ticks(true) },
        yaxis: { ...axis, title: { text: plain(view.row_title) + (view.row_tokens ? " token" : view.row_note) },
          ...ticks(view.row_tokens), autorange: view.row_tokens ? "reversed" : true },
        hoverlabel: { align: "left", bgcolor: "#ffffff", bordercolor: "#57606a", font: { ...font, size: 12 } },
      };
      return Plotly.react(plot, [heat], layout, { displayModeBar: false, responsive: true });
    }

    figure.querySelector(".place").replaceChildren(controls(view, chosen, draw), plot);
    await draw();
    figure.dataset.ready = "yes";
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        seen.unobserve(entry.target);
        start(entry.target).catch((error) => {
          entry.target.querySelector(".place").textContent = `This map cannot be shown: ${error.message}`;
          throw error;
        });
      }
    }
  }, { rootMargin: "600px" });
  document.querySelectorAll("figure.view").forEach((figure) => seen.observe(figure));
})();
