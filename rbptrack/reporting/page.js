"use strict";
// Draws the figures. The explorer is drawn at once, other figures when the reader unfolds their analyzer.
// The page holds all data; this script loads nothing.

const config = JSON.parse(document.getElementById("config").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");

// MLflow shows this page in a frame without an address of its own. The frame blocks links to other files.
if (location.protocol === "blob:" || location.protocol === "about:") {
  for (const part of document.querySelectorAll("#reading [hidden]")) part.hidden = false;
  for (const link of document.querySelectorAll("#reading a")) link.removeAttribute("href");
}

for (const place of document.querySelectorAll(".figure.first")) {
  const controls = document.getElementById("controls");
  (controls ? explore(place, controls) : draw(place)).catch(showProblem(place));
}

for (const part of document.querySelectorAll("details.analyzer")) {
  const drawAll = () => {
    for (const place of part.querySelectorAll(".figure")) draw(place).catch(showProblem(place));
  };
  part.addEventListener("toggle", drawAll, { once: true });
}

function showProblem(place) {
  return (error) => (place.textContent = error.message);
}

async function draw(place) {
  const width = place.clientWidth;
  await embed(place, fitted(await specBeside(place), width));
}

async function specBeside(place) {
  return unpacked(place.parentNode.querySelector("script.spec").textContent);
}

// Decodes JSON that `packed` in page.py compressed with gzip and encoded in base64.
function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(json).json();
}

async function embed(place, spec, further = {}) {
  const result = await vegaEmbed(place, spec, {
    renderer: "svg",
    config: { ...config, ...further },
    mode: "vega-lite",
    actions: { export: true, source: false, compiled: false, editor: false },
    tooltip: { theme: dark.matches ? "dark" : "light" },
  });
  return result.view;
}

// Fits a specification into a width: facets get as many columns as fit, and a single panel is at most as wide.
function fitted(spec, width) {
  if (spec.facet && spec.spec) {
    const panel = spec.spec.width || 240;
    spec.columns = Math.max(1, Math.min(spec.columns || 99, Math.floor(width / (panel + 55))));
    if (spec.columns === 1) spec.spec.width = Math.min(panel, width - 80);
  } else if (typeof spec.width === "number") {
    spec.width = Math.min(spec.width, width - 90);
  }
  return spec;
}

// Draws the explorer (rbptrack/figures/explorer.py) and connects it with the controls above it.
async function explore(place, controls) {
  const original = await specBeside(place);
  const { ks } = original.usermeta.explorer;
  const { k, chosen, metric } = controls.elements;
  const families = choices("families", pick);
  const datasets = choices("datasets", redraw);
  const rowsByK = await lawRows();
  let view;
  let drawnWidth;

  async function redraw() {
    drawnWidth = place.clientWidth;
    const spec = laidOut(structuredClone(original), drawnWidth, datasets.pressed());
    const former = view;
    view = await embed(place, spec, { legend: { disable: true } });
    if (former) former.finalize();
    view.addEventListener("click", (event, item) => {
      if (item?.datum?.alpha === undefined || chosen.disabled) return;
      chosen.value = ks.indexOf(item.datum.k);
      move();
    });
    await pick();
    await move();
    document.body.dataset.drawn = "yes";
  }

  function move() {
    if (!view) return null;
    k.value = ks[chosen.value].toLocaleString("en");
    chosen.setAttribute("aria-valuetext", `k = ${ks[chosen.value]}`);
    chosen.disabled = metric.value !== "rbp";
    document.querySelector(".slider").style.visibility = chosen.disabled ? "hidden" : ""; // cross-entropy has no k
    fillLaws();
    toAddress();
    return view.signal("chosen", +chosen.value).signal("metric", metric.value).runAsync();
  }

  function pick() {
    if (!view) return null;
    for (const row of document.querySelectorAll("#laws tr[data-family]")) {
      const { family, dataset } = row.dataset;
      row.hidden = !(families.pressed().includes(family) && datasets.pressed().includes(dataset));
    }
    toAddress();
    const fields = [{ type: "E", field: "family", channel: "color" }];
    view.data("pick_store", families.pressed().map((family) => ({ unit: "", fields, values: [family] })));
    return view.runAsync();
  }

  // Fills the table of laws with the rows of the chosen metric and k.
  function fillLaws() {
    if (!rowsByK) return;
    const rows = rowsByK[`${metric.value}${metric.value === "rbp" ? ks[chosen.value] : 0}`] ?? [];
    const shown = [...document.querySelectorAll("#laws tbody tr")];
    rows.forEach((texts, i) => {
      [...shown[i].cells].forEach((cell, j) => {
        if (j > 1) setText(cell, texts[j]);
      });
    });
    const ofRanks = metric.value === "rbp";
    for (const row of document.querySelectorAll("#laws tr")) {
      [...row.cells].forEach((cell, j) => (cell.hidden = !ofRanks && rows.every((texts) => !texts[j])));
    }
    document.getElementById("at-k").textContent = ofRanks ? `k = ${k.value}` : "cross-entropy";
    document.getElementById("at-note").hidden = !ofRanks;
  }

  // Writes the choices into the address, and below the table the command that saves this figure as a PDF.
  function toAddress() {
    const words = new URLSearchParams();
    if (metric.value === "rbp") words.set("k", ks[chosen.value]);
    else words.set("metric", metric.value);
    if (!families.all()) words.set("family", families.pressed().join());
    if (!datasets.all()) words.set("dataset", datasets.pressed().join());
    try {
      history.replaceState(null, "", `#${words}`);
    } catch {
      // A frame without an address of its own, such as MLflow's, may not change it.
    }
    const command = document.getElementById("paper-state");
    if (!command) return;
    const filters = JSON.parse(command.dataset.filters);
    if (!families.all()) filters.family = families.pressed().map(quoted).join();
    if (!datasets.all()) filters.dataset = datasets.pressed().map(quoted).join();
    const flags = Object.entries(filters).map(([name, value]) => `--${name} ${value}`);
    command.textContent = [`--k ${metric.value === "rbp" ? ks[chosen.value] : 0}`, ...flags].join(" ");
    document.getElementById("paper-ce").textContent = metric.value === "rbp" ? "" : " (--k 0 stands for cross-entropy)";
  }

  function fromAddress() {
    const words = new URLSearchParams(location.hash.slice(1));
    const named = ks.indexOf(Number(words.get("k")));
    if (named >= 0) chosen.value = named;
    if ([...metric.options].some((option) => option.value === words.get("metric"))) metric.value = words.get("metric");
    else if (named >= 0) metric.value = "rbp";
    for (const [name, buttons] of [["family", families], ["dataset", datasets]]) {
      if (words.get(name)) buttons.press(words.get(name).split(","));
    }
  }

  document.getElementById("save").addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await view.toSVG()], { type: "image/svg+xml" }));
    link.download = metric.value === "rbp" ? `laws-k${ks[chosen.value]}.svg` : "laws-ce.svg";
    link.click();
  });
  addEventListener("hashchange", () => {
    fromAddress();
    redraw();
  });
  fromAddress();
  chosen.addEventListener("input", move);
  metric.addEventListener("change", move);
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => Math.abs(place.clientWidth - drawnWidth) > 30 && redraw(), 150);
  });
  await redraw();
}

// Returns the rows of the table of laws by metric and k, or null if the page has no such table.
async function lawRows() {
  const packed = document.getElementById("rows");
  return packed && unpacked(packed.textContent);
}

// Sets the text of a cell. The interval of a number is faint, as the macro `number` in page.html makes it.
function setText(cell, text) {
  const [estimate, ends] = cell.classList.contains("number") ? text.split(/ (?=\()/) : [text];
  cell.textContent = ends ? `${estimate} ` : estimate;
  if (!ends) return;
  const small = document.createElement("small");
  small.textContent = ends;
  cell.append(small);
}

function quoted(word) {
  return /^[\w.@/+-]+$/.test(word) ? word : `'${word}'`;
}

// Arranges the explorer: laws on the left, their residuals below them, exponents on the right.
// If the page is narrow, they stand below each other.
function laidOut(spec, width, datasets) {
  const inRow = datasets.length <= 3 ? datasets.length : Math.ceil(datasets.length / 2);
  const beside = width >= 340 * inRow;
  const columns = beside ? inRow : width < 500 ? 1 : Math.min(datasets.length, Math.floor(width / 200));
  const room = beside ? (width - spec.spacing) / 2 : width;
  const panel = Math.max(110, Math.floor((room - 46 - 20 * (columns - 1)) / columns));
  const height = width < 500 ? 210 : Math.max(180, Math.min(340, Math.round(panel * 1.15)));
  const [{ data, vconcat: [laws, residuals] }, exponents] = spec.hconcat;
  for (const chart of [laws, residuals, exponents]) {
    chart.columns = columns;
    chart.transform = [{ filter: { field: "dataset", oneOf: datasets } }];
    chart.spec.width = panel;
  }
  laws.spec.height = height;
  exponents.spec.height = height;
  if (beside) {
    const rows = Math.ceil(datasets.length / columns);
    exponents.spec.height += residuals.spec.height + 83 + Math.round(19 / rows); // as high as laws and residuals together
  } else {
    spec.vconcat = [{ data, vconcat: [laws, residuals] }, exponents];
    delete spec.hconcat;
  }
  for (const param of spec.params) {
    // The controls of the page replace Vega's controls, because they also work from the keyboard.
    // Without `clear`, a double click would reset a selection.
    if (param.select) param.select.clear = false;
    else delete param.bind;
  }
  return spec;
}

// Handles a group of buttons that can be pressed. If all are pressed, a click leaves only that one pressed.
// Further clicks add and remove buttons. If none is left, all are pressed again.
function choices(id, changed) {
  const buttons = [...document.querySelectorAll(`#${id} button`)];
  const isPressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, on) => button.setAttribute("aria-pressed", on);

  function toggle({ currentTarget: clicked }) {
    if (buttons.every(isPressed)) {
      for (const button of buttons) press(button, button === clicked);
    } else {
      press(clicked, !isPressed(clicked));
    }
    if (!buttons.some(isPressed)) for (const button of buttons) press(button, true);
    changed();
  }

  for (const button of buttons) button.addEventListener("click", toggle);
  return {
    all: () => buttons.every(isPressed),
    pressed: () => buttons.filter(isPressed).map((button) => button.value),
    press: (names) => {
      if (buttons.some((button) => names.includes(button.value))) {
        for (const button of buttons) press(button, names.includes(button.value));
      }
    },
  };
}
