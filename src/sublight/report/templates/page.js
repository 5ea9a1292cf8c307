"use strict";
// The page is complete without this script; it only adds what a reader may do with it.

function button(text, label, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", () => action(made));
  return made;
}

// Sorting: within each section, largest first, then smallest first, then as it was.
const byText = new Intl.Collator("en", { numeric: true });
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("thead th")];
  const bodies = [...table.tBodies].map((body) => ({ body, rows: [...body.rows] }));
  heads.forEach((head, column) => {
    const how = head.dataset.sort;
    if (!how) return;
    const sort = () => {
      const turn = { none: "descending", descending: "ascending", ascending: "none" }[head.getAttribute("aria-sort")];
      for (const other of heads) if (other.dataset.sort) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", turn);
      const sign = turn === "descending" ? -1 : 1;
      const compare = (a, b) => {
        const [x, y] = [a.cells[column], b.cells[column]];
        if (how === "text") return sign * byText.compare(x.textContent, y.textContent);
        // What has no number goes last, whichever way.
        if (!("key" in x.dataset) || !("key" in y.dataset)) return ("key" in y.dataset) - ("key" in x.dataset);
        return sign * (Number(x.dataset.key) - Number(y.dataset.key));
      };
      for (const { body, rows } of bodies) {
        const plain = rows.filter((row) => row.className === "row");
        const sorted = turn === "none" ? plain : [...plain].sort(compare);
        let next = 0;
        body.append(...rows.map((row) => (row.className === "row" ? sorted[next++] : row)));
      }
    };
    const title = head.textContent;
    head.textContent = "";
    head.setAttribute("aria-sort", "none");
    head.append(button(title, "", sort));
  });
}

// Copying code: through the clipboard where the browser lends it, by selection where not.
for (const block of document.querySelectorAll(".code")) {
  const code = block.querySelector("code");
  block.append(
    button("Copy", "Copy this command", async (pressed) => {
      let done = false;
      try {
        await navigator.clipboard.writeText(code.textContent);
        done = true;
      } catch {
        getSelection().selectAllChildren(code);
      }
      pressed.textContent = done ? "Copied" : "Selected";
      setTimeout(() => (pressed.textContent = "Copy"), 1500);
    }),
  );
}

// Pointing at a series, or at its name, lets the others step back.
for (const chart of document.querySelectorAll("figure")) {
  const members = [...chart.querySelectorAll("[data-series]")];
  const show = (series) => {
    for (const member of members) member.classList.toggle("dim", series !== null && member.dataset.series !== series);
  };
  chart.addEventListener("pointerover", (event) => {
    const member = event.target.closest("[data-series]");
    show(member ? member.dataset.series : null);
  });
  chart.addEventListener("pointerleave", () => show(null));
}
