// Tables sort by the column whose head is pressed: by the numbers with which its cells begin, if any does, else as text.
document.addEventListener("DOMContentLoaded", () => {
  for (const head of document.querySelectorAll("table th")) {
    head.style.cursor = "pointer";
    head.addEventListener("click", () => {
      const body = head.closest("table").tBodies[0];
      const down = head.getAttribute("aria-sort") === "ascending";
      const text = (row) => row.cells[head.cellIndex].textContent.trim();
      const number = (row) => parseFloat(text(row).replace(/,/g, ""));
      const order = (a, b) => (down ? -1 : 1) * (isNaN(number(a)) ? text(a).localeCompare(text(b)) : number(a) - number(b));
      const rows = [...body.rows];
      const [plain, numbered] = [true, false].map((without) => rows.filter((row) => isNaN(number(row)) === without));
      body.append(...numbered.sort(order), ...plain.sort(order)); // what was not measured comes last
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  }
});
