// Draws the figures of the page. The explorer is drawn at once, other figures when the reader unfolds their analyzer.
// The page holds all data. This script loads nothing.

const config = JSON.parse(document.getElementById("config").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");

// MLflow shows this page in a frame without an address of its own. The frame blocks links to other files.
if (location.protocol === "blob:" || location.protocol === "about:") {
  for (const part of document.querySelectorAll("#reading [hidden]")) part.hidden = false;
  for (const link of document.querySelectorAll("#reading a")) link.removeAttribute("href");
}

for (const figure of document.querySelectorAll(".figure.first")) {
  const controls = document.getElementById("controls");
  const drawing = controls ? drawExplorer(figure, controls) : drawFigure(figure);
  drawing.catch((error) => showProblem(figure, error));
}

for (const analyzer of document.querySelectorAll("details.analyzer")) {
  const drawFigures = () => {
    for (const figure of analyzer.querySelectorAll(".figure")) {
      drawFigure(figure).catch((error) => showProblem(figure, error));
    }
  };
  if (analyzer.open) drawFigures(); // the page shows one analyzer only
  else analyzer.addEventListener("toggle", drawFigures, { once: true });
}

function showProblem(figure, error) {
  figure.textContent = error.message;
}

async function drawFigure(figure) {
  const width = figure.clientWidth;
  await embed(figure, fitToWidth(await readSpec(figure), width));
}

// Reads the specification of a figure from the script element after it.
async function readSpec(figure) {
  return decompress(figure.parentNode.querySelector("script.spec").textContent);
}

async function embed(figure, spec, extraConfig = {}) {
  const result = await vegaEmbed(figure, spec, {
    renderer: "svg",
    config: { ...config, ...extraConfig },
    mode: "vega-lite",
    actions: { export: true, source: false, compiled: false, editor: false },
    tooltip: { theme: dark.matches ? "dark" : "light" },
  });
  // Vega-Embed gives neither its menu nor every picture a name for screen readers.
  figure.querySelector("summary")?.setAttribute("aria-label", "Save the figure");
  const caption = figure.parentNode.querySelector("figcaption")?.textContent ?? document.title;
  for (const part of figure.querySelectorAll("svg, [role='graphics-symbol']")) {
    if (!part.hasAttribute("aria-label")) part.setAttribute("aria-label", caption);
  }
  return result.view;
}

// Fits a specification into a width in pixels. Panels get as many columns as fit, and no panel is wider than the width.
function fitToWidth(spec, width) {
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
async function drawExplorer(figure, controls) {
  const originalSpec = await readSpec(figure);
  const { ks } = originalSpec.usermeta.explorer;
  const { k: kOutput, chosen: slider, metric: menu } = controls.elements;
  const families = createButtonGroup("families", showFamilies);
  const datasets = createButtonGroup("datasets", redraw);
  const lawScript = document.getElementById("laws-rows");
  const lawRows = lawScript && (await decompress(lawScript.textContent)); // the rows by metric and k, such as rbp10
  let view;
  let drawnWidth;

  async function redraw() {
    drawnWidth = figure.clientWidth;
    const spec = arrangeExplorer(structuredClone(originalSpec), drawnWidth, datasets.pressed());
    const previousView = view;
    view = await embed(figure, spec, { legend: { disable: true } });
    if (previousView) previousView.finalize();
    // A click on an exponent chooses its k.
    view.addEventListener("click", (event, item) => {
      if (item?.datum?.alpha === undefined || slider.disabled) return;
      slider.value = ks.indexOf(item.datum.k);
      showMetric();
    });
    await showFamilies();
    await showMetric();
    document.body.dataset.drawn = "yes";
  }

  // Returns the chosen k, or 0 for cross-entropy, which has no k.
  function chosenK() {
    return menu.value === "rbp" ? ks[slider.value] : 0;
  }

  // Shows the chosen metric and k in the figure, the table of laws and the address.
  function showMetric() {
    if (!view) return null;
    kOutput.value = ks[slider.value].toLocaleString("en");
    slider.setAttribute("aria-valuetext", `k = ${ks[slider.value]}`);
    slider.disabled = menu.value !== "rbp";
    document.querySelector(".slider").style.visibility = slider.disabled ? "hidden" : "";
    if (lawRows) showLaws(lawRows, menu.value, chosenK());
    showOtherK(chosenK());
    document.getElementById("vg-tooltip-element")?.classList.remove("visible"); // it shows a value of the former k
    writeAddress();
    return view.signal("chosen", +slider.value).signal("metric", menu.value).runAsync();
  }

  // Shows the chosen families in the figure, the table of laws and the address.
  function showFamilies() {
    if (!view) return null;
    for (const row of document.querySelectorAll("#laws tr[data-family]")) {
      const { family, dataset } = row.dataset;
      row.hidden = !(families.pressed().includes(family) && datasets.pressed().includes(dataset));
    }
    writeAddress();
    const fields = [{ type: "E", field: "family", channel: "color" }];
    view.data("selection_store", families.pressed().map((family) => ({ unit: "", fields, values: [family] })));
    return view.runAsync();
  }

  // Writes the choices into the address.
  function writeAddress() {
    const params = new URLSearchParams();
    if (chosenK()) params.set("k", chosenK());
    else params.set("metric", menu.value);
    if (!families.allPressed()) params.set("family", families.pressed().join());
    if (!datasets.allPressed()) params.set("dataset", datasets.pressed().join());
    setAddress(params);
  }

  function readAddress() {
    const params = new URLSearchParams(location.hash.slice(1));
    const indexOfK = ks.indexOf(Number(params.get("k")));
    if (indexOfK >= 0) slider.value = indexOfK;
    if ([...menu.options].some((option) => option.value === params.get("metric"))) menu.value = params.get("metric");
    else if (indexOfK >= 0) menu.value = "rbp";
    if (params.get("family")) families.press(params.get("family").split(","));
    if (params.get("dataset")) datasets.press(params.get("dataset").split(","));
  }

  document.getElementById("save").addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await view.toSVG()], { type: "image/svg+xml" }));
    link.download = chosenK() ? `laws-k${chosenK()}.svg` : "laws-ce.svg";
    link.click();
  });
  addEventListener("hashchange", () => {
    readAddress();
    redraw();
  });
  readAddress();
  slider.addEventListener("input", showMetric);
  menu.addEventListener("change", showMetric);
  let resizeTimer;
  addEventListener("resize", () => {
    clearTimeout(resizeTimer);
    resizeTimer = setTimeout(() => Math.abs(figure.clientWidth - drawnWidth) > 30 && redraw(), 150);
  });
  await redraw();
}

// Fills the table of laws with the rows of a metric and k. k is 0 for cross-entropy.
function showLaws(lawRows, metric, k) {
  const rows = lawRows[`${metric}${k}`];
  const rowElements = [...document.querySelectorAll("#laws tbody tr")];
  rows.forEach((texts, i) => {
    [...rowElements[i].cells].forEach((cell, j) => {
      if (j > 1) setText(cell, texts[j]); // the first two columns are family and dataset
    });
  });
  // Columns that are empty for cross-entropy are hidden.
  for (const row of document.querySelectorAll("#laws tr")) {
    [...row.cells].forEach((cell, j) => (cell.hidden = !k && rows.every((texts) => !texts[j])));
  }
  document.getElementById("laws-k").textContent = k ? `k = ${k.toLocaleString("en")}` : "cross-entropy";
  document.getElementById("laws-note").hidden = !k;
  document.getElementById("pdf-k").textContent = k;
}

// Says below the headline if the figure shows another k than the headline is about. k is 0 for cross-entropy.
function showOtherK(k) {
  const note = document.getElementById("other-k");
  note.querySelector("b").textContent = k ? `RBP_${k}` : "cross-entropy";
  note.hidden = k === Number(document.querySelector(".lead")?.dataset.k ?? k);
}

// Sets the text of a cell. The interval of a number is faint. The macro `show_number` in page.html builds the same elements.
function setText(cell, text) {
  const [estimate, ends] = cell.classList.contains("number") ? text.split(/ (?=\()/) : [text];
  cell.textContent = ends ? `${estimate} ` : estimate;
  if (!ends) return;
  const small = document.createElement("small");
  small.textContent = ends;
  cell.append(small);
}

// Arranges the explorer: laws on the left, their residuals below them, exponents on the right.
// If the page is narrow, the three charts are placed below each other.
function arrangeExplorer(spec, width, datasets) {
  const { panel_margin: panelMargin, chart_gap: chartGap } = spec.usermeta.explorer;
  const panelsInRow = datasets.length <= 3 ? datasets.length : Math.ceil(datasets.length / 2);
  const isWide = width >= 340 * panelsInRow;
  let columns = panelsInRow;
  if (!isWide) columns = width < 500 ? 1 : Math.min(datasets.length, Math.floor(width / 200));
  const chartWidth = isWide ? (width - spec.spacing) / 2 : width;
  const panelWidth = Math.max(110, Math.floor((chartWidth - 46 - 20 * (columns - 1)) / columns));
  const height = width < 500 ? 210 : Math.max(180, Math.min(340, Math.round(panelWidth * 1.15)));
  const [{ data, vconcat: [laws, residuals] }, exponents] = spec.hconcat;
  for (const chart of [laws, residuals, exponents]) {
    chart.columns = columns;
    chart.transform = [{ filter: { field: "dataset", oneOf: datasets } }];
    chart.spec.width = panelWidth;
  }
  laws.spec.height = height;
  exponents.spec.height = height;
  if (isWide) {
    const rows = Math.ceil(datasets.length / columns);
    // A panel of exponents is as high as a panel of laws and a panel of residuals together.
    exponents.spec.height += residuals.spec.height + panelMargin + Math.round(chartGap / rows);
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

// Handles a group of buttons that can be pressed. If all buttons are pressed, a click on one releases the others.
// Further clicks press and release single buttons. If the last button is released, all are pressed again.
function createButtonGroup(id, onChange) {
  const buttons = [...document.querySelectorAll(`#${id} button`)];
  const isPressed = (button) => button.getAttribute("aria-pressed") === "true";
  const setPressed = (button, pressed) => button.setAttribute("aria-pressed", pressed);

  function toggle({ currentTarget: clicked }) {
    if (buttons.every(isPressed)) {
      for (const button of buttons) setPressed(button, button === clicked);
    } else {
      setPressed(clicked, !isPressed(clicked));
    }
    if (!buttons.some(isPressed)) for (const button of buttons) setPressed(button, true);
    onChange();
  }

  for (const button of buttons) button.addEventListener("click", toggle);
  return {
    allPressed: () => buttons.every(isPressed),
    pressed: () => buttons.filter(isPressed).map((button) => button.value),
    // Presses the buttons with these names and releases the others. Does nothing if no button has such a name.
    press: (names) => {
      if (!buttons.some((button) => names.includes(button.value))) return;
      for (const button of buttons) setPressed(button, names.includes(button.value));
    },
  };
}
