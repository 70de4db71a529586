"use strict";
// Shows the texts of the page. All texts are inserted as text, never as HTML. This script loads nothing.

const $ = (id) => document.getElementById(id);
const NAMES = ["rank 1", "2 to 10", "11 to 100", "101 to 1,000", "above 1,000"];
const CHANGES = {
  gained: "now ranked first",
  closer: "better class of rank",
  further: "worse class of rank",
  lost: "no longer first",
};
const MODES = ["ranks", "changes", "pair"];
const SURPRISES = { ranks: "rank above 100", changes: "gain or loss", pair: "gain or loss" };

let data; // all data of the page
let set; // the chosen set of models and texts
let doc; // the chosen document
let spans = []; // the spans of that document: { from, size, text, elements }
let scoredPlace; // for each token of the document, its index among the scored tokens, or -1
let at = -1; // the index of the span that the pointer or the keyboard is on, or -1
let kept = false; // whether that span stays selected when the pointer leaves it
let hits = []; // the first and the last span of each match of the search in this document
let hit = -1; // the index of the current match, or -1
let matchesIn = []; // for each document, the number of matches
const state = { set: 0, document: 0, model: 0, mode: "ranks", against: "", face: "" };

start().catch((error) => {
  $("text").textContent = `This page cannot be shown: ${error.message}. A newer browser may help.`;
});

async function start() {
  const bytes = Uint8Array.from(atob($("data").textContent), (letter) => letter.charCodeAt(0));
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  data = await new Response(json).json();
  data.sets.forEach((each, i) => $("set").add(new Option(each.label, i)));
  $("set-label").hidden = data.sets.length < 2;
  listen();
  fromAddress();
  addEventListener("hashchange", fromAddress);
  document.body.dataset.drawn = "yes";
}

function element(name, text = "", className = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

// Classes of ranks

function classOf(rank) {
  return rank <= 1 ? 0 : rank <= 10 ? 1 : rank <= 100 ? 2 : rank <= 1000 ? 3 : 4;
}

function changeOf(rank, before) {
  if (rank === 1) return before === 1 ? "" : "gained";
  if (before === 1) return "lost";
  const step = classOf(rank) - classOf(before);
  return step < 0 ? "closer" : step > 0 ? "further" : "";
}

// Returns the worst rank among the scored tokens of a span, or 0 if no token is scored.
function rankOf(span, model) {
  let worst = 0;
  for (let i = span.from; i < span.from + span.size; i++) {
    if (scoredPlace[i] >= 0) worst = Math.max(worst, doc.models[model].rank[scoredPlace[i]]);
  }
  return worst;
}

// Returns the index of the model that the chosen model is compared with, or null if there is no such model.
function other() {
  if (state.against !== "") return state.against;
  return state.mode === "pair" ? farthest() : set.models[state.model].smaller;
}

function farthest() {
  return state.model > 0 ? 0 : Math.min(1, set.models.length - 1);
}

// The address

function fromAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const named = (list, name, key) => Math.max(-1, list.findIndex((each) => each[key] === name));
  const place = named(data.sets, words.get("texts"), "label");
  state.set = Math.max(0, place);
  const chosen = data.sets[state.set];
  state.document = Math.max(0, named(chosen.documents, words.get("document"), "id"));
  const model = named(chosen.models, words.get("model"), "name");
  state.model = model < 0 ? chosen.models.length - 1 : model;
  state.mode = MODES.includes(words.get("mode")) ? words.get("mode") : "ranks";
  const against = named(chosen.models, words.get("against"), "name");
  state.against = against < 0 ? "" : against;
  showSet();
  const token = Number(words.get("token") ?? NaN);
  const span = spans.findIndex((each) => token >= each.from && token < each.from + each.size);
  if (span >= 0) point(span, { keep: true, scroll: true });
}

function toAddress() {
  const words = new URLSearchParams();
  if (data.sets.length > 1) words.set("texts", set.label);
  words.set("document", doc.id);
  words.set("model", set.models[state.model].name);
  if (state.mode !== "ranks") words.set("mode", state.mode);
  if (state.against !== "" && state.mode !== "ranks") words.set("against", set.models[state.against].name);
  if (kept) words.set("token", spans[at].from);
  try {
    history.replaceState(null, "", `#${words}`);
  } catch {
    // A frame without an address of its own, such as MLflow's, may not change it.
  }
}

// The shown set and document

function showSet() {
  set = data.sets[state.set];
  $("set").value = state.set;
  const last = set.models.length - 1;
  Object.assign($("model"), { max: last, value: state.model });
  document.querySelector(".sizes").hidden = last === 0;
  for (const button of document.querySelectorAll(".choice button")) button.hidden = last === 0 && button.value !== "ranks";
  if (last === 0) state.mode = "ranks";
  $("against").replaceChildren(new Option("", ""), ...set.models.map((model, i) => new Option(model.name, i)));
  $("of").textContent = `${set.documents.length} of ${set.of.toLocaleString("en")}`;
  showDocument();
}

function showDocument() {
  doc = set.documents[state.document];
  scoredPlace = new Int32Array(doc.shown).fill(-1);
  doc.scored.forEach((token, i) => (scoredPlace[token] = i));
  at = -1;
  kept = false;
  showToken();
  $("heading").textContent = doc.id;
  $("why").textContent = reasons(doc, true);
  const rest = doc.tokens - doc.shown;
  const cut = `The page shows the first ${doc.shown.toLocaleString("en")} of ${doc.tokens.toLocaleString("en")} tokens.`;
  $("more").textContent = rest > 0 ? cut : "";
  layText();
}

// Says why the page shows a document: in sentences, or in few words for the list of documents.
function reasons({ why, influence, share = 0 }, inSentences) {
  const percent = Math.round(100 * share);
  return inSentences ? reasonSentences(why, influence, percent) : reasonWords(why, percent);
}

function reasonSentences(why, influence, percent) {
  const sentences = [];
  if (why.includes("law")) sentences.push("This is one of the documents that decide the law of RBP_10.");
  if (why.includes("difference")) sentences.push("The smallest and the largest model differ most in this and a few other documents.");
  if (why.includes("first")) sentences.push("It is one of the first documents of the dataset.");
  if (influence !== undefined) {
    const change = `${Math.abs(influence).toPrecision(2)} ${influence > 0 ? "lower" : "higher"}`;
    sentences.push(`Without this document α would be ${change}.`);
    if (percent) sentences.push(`${percent}% of the sampling variance of α comes from this document.`);
  }
  return sentences.join(" ");
}

function reasonWords(why, percent) {
  const words = [];
  if (why.includes("law")) words.push("decides the law");
  if (why.includes("difference")) words.push("models differ most");
  if (why.includes("first") && !words.length) words.push("among the first");
  const text = words.join(", ") + (why.includes("law") && percent ? ` (${percent}%)` : "");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// Lays the spans out in paragraphs. In the mode "side by side", each paragraph is a row that shows the text twice.
function layText() {
  const pair = state.mode === "pair";
  document.querySelector("main").classList.toggle("pair", pair);
  const code = state.face ? state.face === "code" : looksLikeCode(doc.texts);
  $("text").classList.toggle("code", code);
  spans = [];
  const rows = document.createDocumentFragment();
  let parts = [];
  let length = 0;
  let from = 0;
  doc.texts.forEach((text, i) => {
    if (!parts.length) {
      const row = element("div", "", "row");
      parts = (pair ? [0, 1] : [0]).map(() => element("div", "", "part"));
      for (const part of parts) part.dir = "auto";
      row.append(...parts);
      rows.append(row);
      if (!pair) row.style.display = "block";
    }
    const elements = parts.map((part) => {
      const span = element("span", text);
      span.dataset.i = i;
      part.append(span);
      return span;
    });
    spans.push({ from, size: doc.sizes[i], text, elements });
    from += doc.sizes[i];
    length += text.length;
    const ends = /\n\s*\n\s*$/.test(text) || (text.includes("\n") && length > 600);
    if (pair ? ends || (text.includes("\n") && !code) : ends) {
      parts = [];
      length = 0;
    }
  });
  $("text").replaceChildren(rows);
  search();
  paint();
}

// Tells code, and drawings made of letters, from prose: many of their lines begin with spaces, or have runs of
// spaces or signs.
function looksLikeCode(texts) {
  const lines = texts.join("").split("\n");
  const codeLines = lines.filter((line) => /^(\t| {2,})\S|\S {3,}\S|[-=|+_#*~]{4,}/.test(line)).length;
  return codeLines > 0.1 * lines.length;
}

// Colours the text and updates everything that depends on the chosen model and mode.
function paint() {
  const { mode, model } = state;
  const against = mode === "ranks" ? null : other();
  const counts = { gained: 0, closer: 0, further: 0, lost: 0 };
  for (const span of spans) {
    const rank = rankOf(span, model);
    const before = against === null ? 0 : rankOf(span, against);
    let classes = [rank ? `k${classOf(rank)}` : "unscored"];
    if (mode === "changes") classes = [rank ? (against === null ? "" : changeOf(rank, before)) : "unscored"];
    if (mode === "pair") {
      classes = [before ? `k${classOf(before)}` : "unscored", ...classes];
      if (before === 1 && rank > 1) classes[0] += " only";
      if (rank === 1 && before > 1) classes[1] += " only";
    }
    span.marked = mode === "ranks" ? rank > 100 : /gained|lost|only/.test(classes.join());
    span.elements.forEach((node, i) => (node.className = classes[i] + (span.text.includes("\n") ? " line" : "")));
  }
  if (against !== null) {
    doc.models[model].rank.forEach((rank, i) => {
      const change = changeOf(rank, doc.models[against].rank[i]);
      if (change) counts[change]++;
    });
  }
  markHits();
  mark();
  showBar(against, counts);
  showList();
  showToken();
  toAddress();
}

function showBar(against, counts) {
  const { mode, model } = state;
  for (const button of document.querySelectorAll(".choice button")) {
    button.setAttribute("aria-checked", button.value === mode);
    button.tabIndex = button.value === mode ? 0 : -1;
  }
  $("model").value = model;
  $("model").setAttribute("aria-valuetext", set.models[model].name);
  $("against-label").hidden = mode === "ranks";
  $("against-word").textContent = mode === "pair" ? "left" : "against";
  const smaller = set.models[model].smaller;
  const automatic = mode === "pair" ? set.models[farthest()].name : smaller === null ? "no smaller model" : set.models[smaller].name;
  $("against").options[0].textContent = mode === "pair" ? `${automatic} (automatic)` : `next smaller: ${automatic}`;
  $("against").value = state.against;
  $("name").textContent = titleOf(model);
  $("columns").hidden = mode !== "pair";
  if (mode === "pair") {
    [...$("columns").children].forEach((heading, i) => (heading.textContent = titleOf(i ? model : against)));
    for (const row of $("text").children) {
      [...row.children].forEach((part, i) => (part.dataset.model = set.models[i ? model : against].name));
    }
  }
  $("next-word").textContent = SURPRISES[mode];
  $("answer").textContent = answer(against, counts);
  showKey(against, counts);
  showStrip(against);
  measureBar();
}

// Gives the style sheet the heights that it needs: that of the bar, and that of its controls, which scroll away on a phone.
function measureBar() {
  const style = document.documentElement.style;
  style.setProperty("--below", `${$("bar").offsetHeight + 10}px`);
  style.setProperty("--controls", `${document.querySelector(".controls").offsetHeight + 8}px`);
}

function titleOf(model) {
  const { name, s } = set.models[model];
  return s ? `${name} (S = ${compact(s)})` : name;
}

function answer(against, counts) {
  const ranks = doc.models[state.model].rank;
  const among = (ranks, k) => share(ranks.filter((rank) => rank <= k).length, ranks.length);
  if (state.mode === "ranks") {
    const where = doc.shown < doc.tokens ? "the tokens shown" : "its tokens";
    return `ranks ${among(ranks, 1)} of ${where} first and ${among(ranks, data.k)} among its first ${data.k}.`;
  }
  if (against === null) return "is the smallest model of its family. Choose another model to compare it with.";
  const before = doc.models[against].rank;
  const name = set.models[against].name;
  return `ranks ${among(ranks, 1)} of the tokens first, ${name} ${among(before, 1)}: ${counts.gained.toLocaleString("en")} tokens gained, ${counts.lost.toLocaleString("en")} lost.`;
}

function showKey(against, counts) {
  const entry = (className, name, text = "") => {
    const item = element("li");
    item.append(element("span", name, className), element("small", text));
    return item;
  };
  const unscored = entry("unscored", "not scored");
  const items = doc.scored.length < doc.shown ? [unscored] : [];
  if (state.mode === "changes") {
    const entries = Object.entries(CHANGES).map(([name, title]) => entry(name, title, share(counts[name], doc.scored.length)));
    $("key").replaceChildren(...(against === null ? [] : entries), ...items);
    return;
  }
  const shares = sharesOf(distribution(state.model));
  const entries = NAMES.map((name, i) => entry(`k${i}`, name, state.mode === "pair" ? "" : shares[i]));
  if (state.mode === "pair") items.unshift(entry("only", "first on this side only"));
  $("key").replaceChildren(...entries, ...items);
}

// Counts the tokens in each class of rank.
function distribution(model) {
  const counts = [0, 0, 0, 0, 0];
  for (const rank of doc.models[model].rank) counts[classOf(rank)]++;
  return counts;
}

// Draws a column for each model, with the shares of the classes of rank: the best class below, the worst above.
function showStrip(against) {
  const columns = set.models.map((model, i) => {
    const column = element("div");
    column.title = model.name;
    column.dataset.model = i;
    if (i === state.model) column.className = "chosen";
    else if (i === against) column.className = "other";
    distribution(i).reverse().forEach((count, j) => {
      const part = element("i", "", `k${4 - j}`);
      part.style.flexGrow = count;
      column.append(part);
    });
    return column;
  });
  $("strip").replaceChildren(...columns);
  const names = set.models.map((model, i) => {
    const name = element("span", model.name, i === state.model ? "chosen" : "");
    name.dataset.model = i;
    return name;
  });
  $("names").replaceChildren(...names);
  $("names").classList.toggle("ends", $("bar").clientWidth / names.length < 70); // room for two names only
  $("model").style.setProperty("--inset", `calc(${50 / names.length}% - 8px)`); // puts the knob below the model's column
}

function showList() {
  const { model } = state;
  const chosen = document.querySelector("#documents th button[aria-pressed='true']")?.value ?? "place";
  const order = set.documents.map((_, i) => i);
  if (chosen === "ce") order.sort((i, j) => set.documents[j].ce[model] - set.documents[i].ce[model]);
  if (chosen === "rbp") order.sort((i, j) => set.documents[i].rbp[model] - set.documents[j].rbp[model]);
  const rows = order.map((i) => {
    const each = set.documents[i];
    const row = element("tr");
    row.dataset.document = i;
    if (i === state.document) row.setAttribute("aria-current", "true");
    const name = element("td");
    const button = element("button", each.id);
    button.type = "button";
    const about = [reasons(each, false), `${each.tokens.toLocaleString("en")} tokens`];
    if (matchesIn[i]) about.push(`${matchesIn[i].toLocaleString("en")} found`);
    name.append(button, element("small", about.filter(Boolean).join(" · ")));
    row.append(name, element("td", each.ce[model].toFixed(2), "number"), element("td", share(each.rbp[model], 1), "number"));
    return row;
  });
  document.querySelector("#documents tbody").replaceChildren(...rows);
}

// The selected token

function point(span, { keep = false, scroll = false } = {}) {
  if (span < 0 || span >= spans.length) return;
  at = span;
  kept = keep;
  mark();
  showToken();
  if (scroll) reveal(spans[span].elements[0]);
  if (keep) toAddress();
}

function reveal(node) {
  const box = node.getBoundingClientRect();
  const above = $("bar").getBoundingClientRect().bottom + 8;
  const panel = getComputedStyle(document.querySelector("aside")).position === "fixed" ? document.querySelector("aside").offsetHeight : 0;
  if (box.top < above || box.bottom > innerHeight - panel - 8) scrollBy(0, box.top - above - (innerHeight - above - panel) / 3);
}

function mark() {
  for (const node of $("text").querySelectorAll(".at")) node.classList.remove("at", "kept");
  if (at < 0) return;
  for (const node of spans[at].elements) {
    node.classList.add("at");
    node.classList.toggle("kept", kept);
  }
}

function showToken() {
  document.querySelector("aside").classList.toggle("open", at >= 0 && kept);
  if (at < 0) {
    $("details").replaceChildren();
    return;
  }
  const { from, size, text } = spans[at];
  const word = element("p", "", "word");
  word.append(element("mark", visible(text)));
  const parts = [word];
  if (size > 1) parts.push(element("p", `${size} tokens share this text, because one of its characters is split over several tokens.`, "about-token"));
  for (let token = from; token < from + size; token++) parts.push(...tokenParts(token));
  $("details").replaceChildren(...parts);
}

function tokenParts(token) {
  const place = scoredPlace[token];
  const where = `token ${(token + 1).toLocaleString("en")} of ${doc.shown.toLocaleString("en")}`;
  if (place < 0) return [element("p", `${where}, not scored: the model reads this token, but metrics do not count it.`, "about-token")];
  const parts = [element("p", where, "about-token")];
  const against = state.mode === "ranks" ? null : other();
  const table = element("table", "", "models");
  const head = element("tr");
  head.append(element("th", "model"), element("th", "rank", "number"), element("th", "p", "number"), element("th", "ranks first"));
  table.append(element("thead"));
  table.tHead.append(head);
  const body = element("tbody");
  set.models.forEach((model, i) => {
    const said = doc.models[i];
    const rank = said.rank[place];
    const row = element("tr", "", i === state.model ? "chosen" : i === against ? "other" : "");
    const cell = element("td", "", "number");
    cell.append(element("span", rank.toLocaleString("en"), `rank k${classOf(rank)}`));
    row.append(element("td", model.name), cell, element("td", said.p ? probability(said.p[place]) : "", "number"));
    row.append(firstChoice(said, place, rank));
    body.append(row);
  });
  table.append(body);
  parts.push(table);
  const said = doc.models[state.model];
  if (said.reference_rank) {
    const first = element("p", `The reference ranks `, "about-token");
    first.append(element("code", visible(set.strings[said.reference_top[place]])));
    first.append(` first, which has rank ${said.reference_rank[place].toLocaleString("en")} in ${set.models[state.model].name}.`);
    parts.push(first);
  }
  return parts;
}

function firstChoice(said, place, rank) {
  const cell = element("td");
  if (rank === 1) {
    cell.append(element("span", "this token", "same"));
  } else if (said.top) {
    said.topPlace ??= firstPlaces(said.rank);
    cell.append(element("code", visible(set.strings[said.top[said.topPlace[place]]])));
  }
  return cell;
}

// Returns for each token its index in `top`, which holds the tokens with a rank above 1 only, or -1.
function firstPlaces(ranks) {
  let count = 0;
  return ranks.map((rank) => (rank > 1 ? count++ : -1));
}

function visible(text) {
  const shown = text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍");
  return shown.replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length)) || "(empty)";
}

// Numbers

function share(part, of) {
  return of ? `${((100 * part) / of).toFixed(1)}%` : "–";
}

// Returns the shares of classes as texts. Their sums from the first class on are rounded, so the texts add up to 100%
// and agree with the shares of "first" and "among its first 10" in the answer.
function sharesOf(counts) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let sum = 0;
  let before = 0;
  return counts.map((count) => {
    if (!total) return share(count, total);
    sum += count;
    const upTo = Math.round((1000 * sum) / total);
    const permille = upTo - before;
    before = upTo;
    return share(permille, 1000);
  });
}

function probability(steps) {
  const p = Math.exp(-steps * data.step);
  if (p >= 0.001) return `${Number((100 * p).toPrecision(2))}%`;
  const [mantissa, exponent] = p.toExponential(0).split("e");
  return `${mantissa}·10${[...exponent].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit] ?? "⁻").join("")}`;
}

function compact(value) {
  const [limit, suffix] = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]].find(([limit]) => value >= limit) ?? [1, ""];
  return `${Number((value / limit).toPrecision(3))}${suffix}`;
}

// Search

function matches(texts, wanted) {
  const whole = texts.join("").toLowerCase();
  const places = [];
  for (let i = whole.indexOf(wanted); i >= 0; i = whole.indexOf(wanted, i + wanted.length)) places.push(i);
  return places;
}

function search() {
  const wanted = $("search").value.toLowerCase();
  hits = [];
  hit = -1;
  matchesIn = set.documents.map((each) => (wanted ? matches(each.texts, wanted).length : 0));
  if (wanted) {
    const ends = [];
    let total = 0;
    for (const text of doc.texts) ends.push((total += text.toLowerCase().length));
    let first = 0;
    for (const begin of matches(doc.texts, wanted)) {
      while (ends[first] <= begin) first++;
      let last = first;
      while (ends[last] < begin + wanted.length) last++;
      hits.push([first, last]);
    }
  }
  showMatchCount();
}

function showMatchCount() {
  const all = matchesIn.reduce((sum, count) => sum + count, 0);
  const elsewhere = all - hits.length;
  let text = "";
  if ($("search").value) text = hits.length ? `${Math.max(hit, 0) + 1}/${hits.length}` : "none here";
  if (elsewhere) text += ` +${elsewhere}`;
  $("found").textContent = text;
  $("found").title = elsewhere ? `${elsewhere} in other documents. Enter goes to the next match, also in other documents.` : "";
}

function markHits() {
  for (const node of $("text").querySelectorAll(".hit")) node.classList.remove("hit", "now");
  hits.forEach(([first, last], i) => {
    for (let j = first; j <= last; j++) {
      for (const node of spans[j].elements) {
        node.classList.add("hit");
        if (i === hit) node.classList.add("now");
      }
    }
  });
}

// Goes to the next match (step 1) or the previous match (step -1), in this document or in another.
function nextHit(step) {
  if (!matchesIn.some(Boolean)) return;
  const next = hit < 0 && step > 0 ? 0 : hit + step;
  if (next >= 0 && next < hits.length) {
    hit = next;
  } else {
    const count = set.documents.length;
    let place = state.document;
    do place = (place + step + count) % count;
    while (!matchesIn[place]);
    state.document = place;
    showDocument();
    hit = step > 0 ? 0 : hits.length - 1;
  }
  markHits();
  showMatchCount();
  reveal(spans[hits[hit][0]].elements[0]);
}

// Actions of the reader

function choose(model) {
  state.model = Math.min(Math.max(model, 0), set.models.length - 1);
  paint();
}

function chooseMode(mode) {
  const relaid = (mode === "pair") !== (state.mode === "pair");
  state.mode = mode;
  const span = kept ? at : -1;
  if (relaid) layText();
  else paint();
  if (span >= 0) point(span, { keep: true });
}

function spanOf(event) {
  const node = event.target.closest?.("[data-i]");
  return node ? Number(node.dataset.i) : -1;
}

// Returns the span in the line above or below that is nearest in the horizontal direction.
function inNextLine(step) {
  const from = spans[at].elements[0].getBoundingClientRect();
  const middle = (from.left + from.right) / 2;
  let best = -1;
  let line = null;
  for (let i = at + step; i >= 0 && i < spans.length; i += step) {
    const box = spans[i].elements[0].getClientRects()[0] ?? from;
    if (Math.abs(box.top - from.top) < from.height / 2) continue;
    line ??= box.top;
    if (Math.abs(box.top - line) > box.height / 2) break;
    const distance = Math.abs((box.left + box.right) / 2 - middle);
    if (best < 0 || distance < best.distance) best = { i, distance };
  }
  return best.i ?? at;
}

function nextMarked(step) {
  for (let i = at + step; i >= 0 && i < spans.length; i += step) if (spans[i].marked) return i;
  return -1;
}

function onTextKey(event) {
  const rightToLeft = at >= 0 && getComputedStyle(spans[at].elements[0]).direction === "rtl" ? -1 : 1;
  const moves = {
    ArrowRight: () => at + rightToLeft,
    ArrowLeft: () => at - rightToLeft,
    ArrowDown: () => (at < 0 ? 0 : inNextLine(1)),
    ArrowUp: () => (at < 0 ? 0 : inNextLine(-1)),
    Home: () => 0,
    End: () => spans.length - 1,
  };
  const move = moves[event.key];
  if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  point(at < 0 ? 0 : move(), { keep: true, scroll: true });
}

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || /INPUT|SELECT/.test(event.target.tagName)) return;
  if (event.key === "[") choose(state.model - 1);
  else if (event.key === "]") choose(state.model + 1);
  else if (event.key === "n") point(nextMarked(1), { keep: true, scroll: true });
  else if (event.key === "p") point(nextMarked(-1), { keep: true, scroll: true });
  else if (event.key === "/") $("search").focus();
  else if (event.key === "Escape") release();
  else return;
  event.preventDefault();
}

function release() {
  at = -1;
  kept = false;
  mark();
  showToken();
  toAddress();
}

function listen() {
  $("model").addEventListener("input", () => choose(Number($("model").value)));
  for (const id of ["strip", "names"]) {
    $(id).addEventListener("click", (event) => {
      const column = event.target.closest("[data-model]");
      if (column) choose(Number(column.dataset.model));
    });
  }
  $("against").addEventListener("change", () => {
    state.against = $("against").value === "" ? "" : Number($("against").value);
    paint();
  });
  const modes = [...document.querySelectorAll(".choice button")];
  for (const [i, button] of modes.entries()) {
    button.addEventListener("click", () => chooseMode(button.value));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = modes[(i + step + modes.length) % modes.length];
      next.focus();
      chooseMode(next.value);
    });
  }
  $("set").addEventListener("change", () => {
    Object.assign(state, { set: Number($("set").value), document: 0, against: "" });
    state.model = data.sets[state.set].models.length - 1;
    showSet();
  });
  document.querySelector("#documents tbody").addEventListener("click", (event) => {
    const row = event.target.closest("[data-document]");
    if (!row) return;
    state.document = Number(row.dataset.document);
    showDocument();
    reveal($("heading"));
  });
  for (const button of document.querySelectorAll("#documents th button")) {
    button.addEventListener("click", () => {
      for (const each of document.querySelectorAll("#documents th button")) each.setAttribute("aria-pressed", each === button);
      showList();
    });
  }
  $("face").addEventListener("click", () => {
    state.face = $("text").classList.contains("code") ? "prose" : "code";
    layText();
  });
  $("search").addEventListener("input", () => {
    search();
    if (hits.length) hit = 0;
    markHits();
    showMatchCount();
    showList();
    if (hits.length) reveal(spans[hits[0][0]].elements[0]);
  });
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    nextHit(event.shiftKey ? -1 : 1);
  });
  const text = $("text");
  text.addEventListener("pointerover", (event) => {
    const span = spanOf(event);
    if (span >= 0 && !kept && event.pointerType === "mouse") point(span);
  });
  text.addEventListener("click", (event) => {
    const span = spanOf(event);
    if (span < 0 || !getSelection().isCollapsed) return;
    if (kept && span === at) release();
    else point(span, { keep: true });
  });
  text.addEventListener("keydown", onTextKey);
  $("close").addEventListener("click", release);
  addEventListener("keydown", onKey);
  addEventListener("resize", measureBar);
}
