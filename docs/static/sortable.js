// Tables sort by the column whose head is pressed, by the first number in a cell if every cell has one.
document.addEventListener("DOMContentLoaded", () => {
  for (const head of document.querySelectorAll("table th")) {
    head.style.cursor = "pointer";
    head.addEventListener("click", () => {
      const body = head.closest("table").tBodies[0];
      const column = head.cellIndex;
      const down = head.getAttribute("aria-sort") === "ascending";
      const text = (row) => row.cells[column].textContent.trim();
      const number = (row) => parseFloat(text(row).replace(/,/g, "").match(/[-+]?\d+(\.\d+)?/)?.[0]);
      const rows = [...body.rows];
      const numeric = rows.every((row) => !Number.isNaN(number(row)));
      rows.sort((a, b) => (numeric ? number(a) - number(b) : text(a).localeCompare(text(b))));
      body.append(...(down ? rows.reverse() : rows));
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  }
});
