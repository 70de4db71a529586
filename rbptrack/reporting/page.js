"use strict";
// Draws the figures: the explorer at once, others when their part is opened. All data are in the page; nothing is fetched.

const config = JSON.parse(document.getElementById("config").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");

function embed(place, spec, further = {}) {
  return vegaEmbed(place, spec, {
    renderer: "svg",
    config: { ...config, ...further },
    mode: "vega-lite",
    actions: { export: true, source: false, compiled: false, editor: false },
    tooltip: { theme: dark.matches ? "dark" : "light" },
  }).then((result) => result.view);
}

// JSON in gzip and base64, as page.py packs it.
function specBeside(place) {
  const packed = place.parentNode.querySelector("script.spec").textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(json).json();
}

// Any other figure: facets get as many columns as fit, single panels no more than the width.
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

async function drawOnce(place) {
  place.classList.add("begun"); // its part may be closed and opened again before it is drawn
  const width = place.clientWidth;
  await embed(place, fitted(await specBeside(place), width));
}

function showProblem(place) {
  return (error) => (place.textContent = error.message);
}

for (const details of document.querySelectorAll("details.analyzer")) {
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    for (const place of details.querySelectorAll(".figure:not(.begun)")) drawOnce(place).catch(showProblem(place));
  });
}

const first = document.querySelector(".figure.first");
const controls = document.getElementById("controls");
if (first) (controls ? explore() : drawOnce(first)).catch(showProblem(first));

async function explore() {
  const original = await specBeside(first);
  const { ks } = original.usermeta;
  const slider = document.getElementById("chosen");
  const metric = document.getElementById("metric");
  const shownK = document.getElementById("k");
  const buttons = (id) => [...document.querySelectorAll(`#${id} button`)];
  const pressed = (id) => buttons(id).filter((b) => b.getAttribute("aria-pressed") === "true").map((b) => b.value);
  let view = null;
  let drawnWidth = 0;
  slider.value = original.params.find((param) => param.name === "chosen").value;

  // Laws left and exponents right, or below each other where the page is narrow.
  function laidOut(width) {
    const spec = structuredClone(original);
    const chosen = original.usermeta.datasets.length > 1 ? pressed("datasets") : original.usermeta.datasets;
    const panels = (kind) => spec.concat.filter((panel) => chosen.some((name) => panel.name === `${kind} of ${name}`));
    const laws = panels("laws");
    const exponents = panels("exponents");
    const side = laws.length <= 3 ? laws.length : Math.ceil(laws.length / 2);
    const order = [];
    if (width >= 340 * side) {
      for (let i = 0; i < laws.length; i += side) order.push(...laws.slice(i, i + side), ...exponents.slice(i, i + side));
      spec.columns = 2 * side;
    } else if (width >= 500) {
      spec.columns = Math.min(laws.length, Math.floor(width / 200));
      for (let i = 0; i < laws.length; i += spec.columns) {
        order.push(...laws.slice(i, i + spec.columns), ...exponents.slice(i, i + spec.columns));
      }
    } else {
      laws.forEach((panel, i) => order.push(panel, exponents[i]));
      spec.columns = 1;
    }
    const panel = Math.max(110, Math.floor((width + 2) / spec.columns) - 56);
    const height = spec.columns === 1 ? 210 : Math.max(180, Math.min(340, Math.round(panel * 1.15)));
    for (const one of order) Object.assign(one, { width: panel, height });
    spec.concat = order;
    const legend = (order[0].layer[0].name ||= "legend"); // the selection belongs to a panel that may be gone
    for (const param of spec.params) {
      delete param.bind; // the controls above are for the keyboard, too
      if (param.select) Object.assign(param, { views: [legend], select: { ...param.select, on: "click[false]" } });
      if (param.name === "chosen") param.value = +slider.value;
      if (param.name === "metric" && metric) param.value = metric.value;
    }
    return spec;
  }

  function choose() {
    const all = original.usermeta.families;
    const families = all.length > 1 ? pressed("families") : all;
    const picked = families.length === all.length ? [] : families.length ? families : [null];
    const fields = [{ type: "E", field: "family", channel: "color" }];
    view.data("pick_store", picked.map((name) => ({ unit: "", fields, values: [name] })));
    const datasets = original.usermeta.datasets.length > 1 ? pressed("datasets") : original.usermeta.datasets;
    for (const row of document.querySelectorAll("#laws tr[data-family]")) {
      row.hidden = !(families.includes(row.dataset.family) && datasets.includes(row.dataset.dataset));
    }
    return view.runAsync();
  }

  function label() {
    const k = ks[slider.value];
    shownK.textContent = k.toLocaleString("en");
    slider.setAttribute("aria-valuetext", `k = ${k}`);
    slider.disabled = Boolean(metric) && metric.value !== "rbp";
  }

  function draw() {
    drawnWidth = first.clientWidth;
    return embed(first, laidOut(drawnWidth), { legend: { disable: true } }).then((drawn) => {
      if (view) view.finalize();
      view = drawn;
      document.body.dataset.drawn = "yes";
      view.addEventListener("click", (event, item) => {
        if (item && item.datum && item.datum.alpha !== undefined && !slider.disabled) {
          slider.value = ks.indexOf(item.datum.k);
          move();
        }
      });
      return choose();
    });
  }

  function move() {
    label();
    if (view) view.signal("chosen", +slider.value).signal("metric", metric ? metric.value : "rbp").runAsync();
  }

  for (const id of ["families", "datasets"]) {
    for (const button of buttons(id)) {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") === "true";
        const others = pressed(id).length - (on ? 1 : 0);
        const alone = on && others === buttons(id).length - 1; // the first click on one of all shows it alone
        for (const other of buttons(id)) {
          if (alone) other.setAttribute("aria-pressed", other === button);
        }
        if (!alone) button.setAttribute("aria-pressed", !on);
        if (!pressed(id).length) buttons(id).forEach((other) => other.setAttribute("aria-pressed", true));
        if (id === "datasets") draw();
        else choose();
      });
    }
  }
  slider.addEventListener("input", move);
  if (metric) metric.addEventListener("change", move);
  controls.addEventListener("submit", (event) => event.preventDefault());
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => Math.abs(first.clientWidth - drawnWidth) > 30 && draw(), 150);
  });
  label();
  await draw();
}
