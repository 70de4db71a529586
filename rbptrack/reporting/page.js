(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    element.append(...children);
    return element;
  };

  // Print everything: folded sections are opened, and closed again afterwards.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    opened.forEach(one => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach(one => { one.open = false; }));

  // Values at the nearest point, for mouse, finger and arrow keys.
  const tip = make("div", { class: "tip off", role: "status" });
  document.body.append(tip);
  const place = point => {
    const box = point.getBoundingClientRect(), text = point.dataset.title;
    if (tip.textContent !== text) tip.textContent = text;
    tip.classList.remove("off");
    const left = Math.min(box.x + box.width / 2 - tip.offsetWidth / 2, document.documentElement.clientWidth - tip.offsetWidth - 4);
    tip.style.left = `${scrollX + Math.max(4, left)}px`;
    tip.style.top = `${scrollY + box.y - tip.offsetHeight - 6}px`;
  };
  const hide = () => tip.classList.add("off");
  const panelWithValues = panel => {
    all("use > title", panel).forEach(title => {
      title.parentNode.dataset.title = title.textContent;
      title.remove();
    });
    const points = () => all("use[data-title]", panel).filter(point => !point.closest(".off"));
    if (!points().length) return;
    const nearest = event => {
      let best = null, least = 32;
      points().forEach(point => {
        const box = point.getBoundingClientRect();
        const far = Math.hypot(event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
        if (far < least) [best, least] = [point, far];
      });
      return best;
    };
    const show = event => { const point = nearest(event); if (point) place(point); else hide(); };
    panel.addEventListener("pointermove", show);
    panel.addEventListener("pointerdown", show);
    panel.addEventListener("pointerleave", hide);
    panel.setAttribute("tabindex", "0");
    let at = -1;
    panel.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const there = points();
      if (!step || !there.length) return;
      event.preventDefault();
      at = (at + step + there.length) % there.length;
      place(there[at]);
    });
    panel.addEventListener("blur", hide);
  };
  all("svg.panel").forEach(panelWithValues);

  // A table sorts by the column whose head is pressed.
  all("table.sorts").forEach(table => all("th", table).forEach((head, column) => {
    if (!head.textContent) return;
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      all("th", table).forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const empty = text => text === "" || text === "nan";
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (empty(x) || empty(y)) return empty(x) - empty(y);
        return sign * (Number(x) - Number(y) || x.localeCompare(y, undefined, { numeric: true }));
      };
      table.tBodies[0].append(...[...table.rows].slice(1).sort(compare));
    });
  }));

  // One figure to choose from: metric, dataset, families.
  all("figure.choice").forEach(figure => {
    const panels = all("svg.panel", figure), grid = figure.querySelector(".panels");
    const names = key => [...new Set(panels.map(panel => panel.dataset[key]).filter(Boolean))];
    const families = [...new Set(all("[data-series]", figure).map(group => group.dataset.series))];
    const state = { metric: names("metric")[1] ?? names("metric")[0], dataset: "", off: new Set() };
    const update = () => {
      panels.forEach(panel => {
        const { metric, dataset } = panel.dataset;
        panel.classList.toggle("off", metric !== state.metric || Boolean(dataset && state.dataset && dataset !== state.dataset));
        panel.classList.toggle("alone", Boolean(dataset && (state.dataset || names("dataset").length === 1)));
      });
      all("[data-series]", figure).forEach(group => group.classList.toggle("off", state.off.has(group.dataset.series)));
      hide();
      resize();
    };
    const resize = () => panels.forEach(panel => { // letters keep their size
      const { width } = panel.getBoundingClientRect();
      if (width) panel.style.setProperty("--letters", Math.min(1, parseFloat(panel.style.getPropertyValue("--w")) / width));
    });
    addEventListener("resize", resize);
    const labelled = (input, ...texts) => make("label", {}, input, ...texts);
    const inWords = metric => {
      const k = /^rbp_(\d+)$/.exec(metric);
      return k ? ["RBP", make("sub", {}, k[1])] : [metric.toUpperCase()];
    };
    const metrics = make("fieldset", {}, make("legend", {}, "Metric"), ...names("metric").map(metric => {
      const input = make("input", { type: "radio", name: "metric", value: metric });
      input.checked = metric === state.metric;
      input.addEventListener("change", () => { state.metric = metric; update(); });
      return labelled(input, make("span", {}, ...inWords(metric)));
    }));
    const select = make("select", {}, make("option", { value: "" }, "all"), ...names("dataset").map(name => make("option", { value: name }, name)));
    select.addEventListener("change", () => { state.dataset = select.value; update(); });
    const controls = make("div", { class: "controls" }, metrics, labelled(make("b", {}, "Dataset"), select));
    if (families.length > 1) {
      const swatch = name => {
        const point = all("[data-series] use", figure).find(use => use.closest("[data-series]").dataset.series === name);
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        svg.setAttribute("viewBox", "-4 -4 8 8");
        svg.setAttribute("aria-hidden", "true");
        if (point) {
          const copy = point.cloneNode();
          ["x", "y"].forEach(name => copy.removeAttribute(name));
          svg.append(copy);
        }
        return svg;
      };
      controls.append(make("fieldset", {}, make("legend", {}, "Families"), ...families.map(name => {
        const input = make("input", { type: "checkbox" });
        input.checked = true;
        input.addEventListener("change", () => { state.off[input.checked ? "delete" : "add"](name); update(); });
        return labelled(input, swatch(name), name);
      })));
    }
    grid.classList.add("live");
    figure.before(controls);
    update();
  });
})();
