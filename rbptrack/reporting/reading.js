// Shows the texts of the reading page with the rank of each token. All texts are inserted as text, never as HTML.
// The page holds all data. This script loads nothing.

const $ = (id) => document.getElementById(id);
const RANK_CLASS_NAMES = ["rank 1", "2 to 10", "11 to 100", "101 to 1,000", "above 1,000"];
const RANK_CLASS_ENDS = [1, 10, 100, 1000]; // the largest rank of each class but the last
const CHANGE_NAMES = {
  gained: "now ranked first",
  closer: "better class of rank",
  further: "worse class of rank",
  lost: "no longer first",
};
const WORD_CLASS_NAMES = ["p above 50%", "10 to 50%", "1 to 10%", "0.1 to 1%", "below 0.1%"];
const WORD_CLASS_ENDS = [0.5, 0.1, 0.01, 0.001].map((p) => -Math.log(p)); // the largest surprisal of each class but the last
const MODES = ["ranks", "changes", "pair", "words"];
// In each mode, the tokens to which the keys n and p jump. reading.css also marks them.
const MARKED_NAMES = { ranks: "rank above 100", changes: "gain or loss", pair: "gain or loss", words: "word with p below 1%" };

let data; // all data of the page
let textSet; // the chosen set of models and texts
let doc; // the chosen document
// The spans of the chosen document: { from, size, text, elements, marked }. A span is the text of one token, or of the
// tokens that share a character. `from` is the index of its first token and `size` the number of its tokens.
let spans = [];
let words = []; // for each word of the document, the indices of its first span and of the span after its last one
let wordOfSpan = []; // for each span, the index of its word
let scoredIndex; // for each token of the document, its index among the scored tokens, or -1
let selected = -1; // the index of the selected span, or -1
let isPinned = false; // whether the selected span stays selected when the pointer leaves it
let matchSpans = []; // for each match of the search in this document, the indices of its first and its last span
let currentMatch = -1; // the index of the match to which the search went last, or -1
let matchCounts = []; // for each document, the number of matches
// `set`, `document` and `model` are indices. `against` is the index of the model to compare with, or "" if the page
// chooses it.
const state = { set: 0, document: 0, model: 0, mode: "ranks", against: "" };

start().catch((error) => {
  $("text").textContent = `This page cannot be shown: ${error.message}. A newer browser may help.`;
});

async function start() {
  data = await decompress($("data").textContent);
  data.sets.forEach((candidate, i) => $("set").add(new Option(candidate.label, i)));
  $("set-label").hidden = data.sets.length < 2;
  addListeners();
  readAddress();
  addEventListener("hashchange", readAddress);
  document.body.dataset.drawn = "yes";
}

function element(name, text = "", className = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (className) node.className = className;
  return node;
}

// Classes of ranks and of words

// Returns the index of the class that holds a value. `ends` are the largest values of all classes but the last.
function classOf(value, ends) {
  const index = ends.findIndex((end) => value <= end);
  return index < 0 ? ends.length : index;
}

function rankClass(rank) {
  return classOf(rank, RANK_CLASS_ENDS);
}

// Names the change from one model to another by its CSS class. Returns "" if the rank stays in its class.
function rankChange(rank, before) {
  if (rank === 1) return before === 1 ? "" : "gained";
  if (before === 1) return "lost";
  const step = rankClass(rank) - rankClass(before);
  if (step === 0) return "";
  return step < 0 ? "closer" : "further";
}

// Returns the worst rank among the scored tokens of a span, or 0 if none of its tokens is scored.
function worstRank(span, model) {
  let worst = 0;
  for (let i = span.from; i < span.from + span.size; i++) {
    if (scoredIndex[i] >= 0) worst = Math.max(worst, doc.models[model].rank[scoredIndex[i]]);
  }
  return worst;
}

// Returns the index of the model that the chosen model is compared with, or null if there is no such model.
function comparedModel() {
  if (state.against !== "") return state.against;
  const { smaller, earlier } = textSet.models[state.model];
  return state.mode === "pair" ? defaultPairModel() : (earlier ?? smaller);
}

// Returns a model of equal size and of another family or precision. Without such a model, returns the smallest model, or
// the second smallest if the smallest one is chosen.
function defaultPairModel() {
  const fallback = state.model > 0 ? 0 : Math.min(1, textSet.models.length - 1);
  return textSet.models[state.model].equal ?? fallback;
}

// Words

// Finds the words of the document. A word begins at a span that begins with a blank, and after one that ends with a blank.
function findWords() {
  words = [];
  wordOfSpan = spans.map(({ text }, i) => {
    const begins = i === 0 || /^\s/.test(text) || /\s$/.test(spans[i - 1].text);
    if (begins) words.push([i, i]);
    words.at(-1)[1] = i + 1;
    return words.length - 1;
  });
}

// Returns the surprisals of all words of the document that are more than blanks and of which all tokens are scored.
function surprisalsOfWords(model) {
  const isWord = ([first, end]) => spans.slice(first, end).some(({ text }) => text.trim());
  const surprisals = words.map((word, i) => (isWord(word) ? wordSurprisal(i, model) : NaN));
  return surprisals.filter((surprisal) => !Number.isNaN(surprisal));
}

// Returns the sum of -ln p over the tokens of a word, in nats, or NaN if one of its tokens is not scored.
function wordSurprisal(word, model) {
  const [first, end] = words[word];
  const steps = doc.models[model].nll_steps;
  let sum = 0;
  for (let token = spans[first].from; token < spans[end - 1].from + spans[end - 1].size; token++) {
    sum += scoredIndex[token] < 0 ? NaN : steps[scoredIndex[token]] * data.step;
  }
  return sum;
}

function wordClass(surprisal) {
  return classOf(surprisal, WORD_CLASS_ENDS);
}

// The address

function readAddress() {
  const params = new URLSearchParams(location.hash.slice(1));
  const indexOf = (items, key, param) => items.findIndex((item) => item[key] === params.get(param));
  state.set = Math.max(0, indexOf(data.sets, "label", "texts"));
  const { documents, models } = data.sets[state.set];
  const named = indexOf(documents, "id", "document");
  state.document = Math.max(0, named);
  const model = indexOf(models, "name", "model");
  state.model = model < 0 ? models.length - 1 : model;
  state.mode = MODES.includes(params.get("mode")) ? params.get("mode") : "ranks";
  const against = indexOf(models, "name", "against");
  state.against = against < 0 ? "" : against;
  showSet();
  const gain = named < 0 ? documents[0].gain : null; // without an address, the page opens at the largest gain
  const token = Number(params.get("token") ?? gain?.token ?? NaN);
  const span = spans.findIndex(({ from, size }) => token >= from && token < from + size);
  if (span >= 0) selectSpan(span, { pin: true, scroll: true });
}

function writeAddress() {
  const params = new URLSearchParams();
  if (data.sets.length > 1) params.set("texts", textSet.label);
  params.set("document", doc.id);
  params.set("model", textSet.models[state.model].name);
  if (state.mode !== "ranks") params.set("mode", state.mode);
  if (state.against !== "" && comparesModels()) params.set("against", textSet.models[state.against].name);
  if (isPinned) params.set("token", spans[selected].from);
  setAddress(params);
}

// The shown set and document

function showSet() {
  textSet = data.sets[state.set];
  $("set").value = state.set;
  Object.assign($("model"), { max: textSet.models.length - 1, value: state.model });
  const isSingle = textSet.models.length === 1; // there is no model to compare with
  if (isSingle && comparesModels()) state.mode = "ranks";
  document.querySelector(".sizes").hidden = isSingle;
  for (const button of document.querySelectorAll(".choice button")) {
    button.hidden = isSingle && (button.value === "changes" || button.value === "pair");
  }
  $("against").replaceChildren(new Option("", ""), ...textSet.models.map((model, i) => new Option(model.name, i)));
  $("document-count").textContent = `${textSet.documents.length} of ${textSet.num_documents.toLocaleString("en")}`;
  showDocument();
}

function showDocument() {
  doc = textSet.documents[state.document];
  scoredIndex = new Int32Array(doc.shown).fill(-1);
  doc.scored.forEach((token, i) => (scoredIndex[token] = i));
  selected = -1;
  isPinned = false;
  showToken();
  $("heading").textContent = doc.id;
  $("reasons").textContent = `${reasonText(doc)}. ${influenceSentences(doc)}`;
  const cut = `The page shows the first ${doc.shown.toLocaleString("en")} of ${doc.tokens.toLocaleString("en")} tokens.`;
  $("more").textContent = doc.shown < doc.tokens ? cut : "";
  layOutText();
}

// Says in few words why the page shows a document.
function reasonText({ reasons, share = 0, gain }) {
  const percent = Math.round(100 * share);
  const [small, large] = textSet.compared.map((model) => textSet.models[model].name);
  const clauses = [];
  if (reasons.includes("law")) clauses.push(percent ? `decides the law (${percent}%)` : "decides the law");
  if (reasons.includes("difference")) clauses.push(`${small} and ${large} differ most`);
  if (reasons.includes("requested")) clauses.push("you asked for it");
  if (reasons.includes("first") && !clauses.length) clauses.push("among the first");
  if (gain) clauses.push(`“${gain.text}” from rank ${gain.before.toLocaleString("en")} to ${gain.after.toLocaleString("en")}`);
  const text = clauses.join(", ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// Says how a document changes the exponent of RBP_10.
function influenceSentences({ influence, share }) {
  if (influence === undefined) return "";
  const change = `${Math.abs(influence).toPrecision(2)} ${influence > 0 ? "lower" : "higher"}`;
  const sentence = `Without this document α of RBP_10 of ${textSet.law_family} would be ${change}.`;
  const percent = Math.round(100 * share);
  return percent ? `${sentence} ${percent}% of the sampling variance of this α comes from this document.` : sentence;
}

// Lays the spans out in paragraphs. In the mode "side by side", each paragraph is a row that shows the text twice.
function layOutText() {
  const isPair = state.mode === "pair";
  document.querySelector("main").classList.toggle("pair", isPair);
  const isCode = looksLikeCode(doc.texts);
  $("text").classList.toggle("code", isCode);
  spans = [];
  const rows = document.createDocumentFragment();
  let parts = [];
  let length = 0;
  let from = 0;
  doc.texts.forEach((text, i) => {
    // A paragraph is a row. It has one part, or two in the mode "side by side".
    if (!parts.length) {
      const row = element("div", "", "row");
      parts = (isPair ? [0, 1] : [0]).map(() => element("div", "", "part"));
      for (const part of parts) part.dir = "auto";
      row.append(...parts);
      rows.append(row);
      if (!isPair) row.style.display = "block";
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
    const endsLine = text.includes("\n");
    const endsParagraph = /\n\s*\n\s*$/.test(text) || (endsLine && length > 600);
    if (endsParagraph || (isPair && endsLine && !isCode)) {
      parts = [];
      length = 0;
    }
  });
  $("text").replaceChildren(rows);
  findWords();
  search();
  paint();
}

// Returns whether a text looks like code or a table: more than a tenth of its lines are indented, or have several spaces
// or signs in a row.
function looksLikeCode(texts) {
  const lines = texts.join("").split("\n");
  const codeLines = lines.filter((line) => /^(\t| {2,})\S|\S {3,}\S|[-=|+_#*~]{4,}/.test(line)).length;
  return codeLines > 0.1 * lines.length;
}

// Colours the text and updates everything that depends on the chosen model and mode.
function paint() {
  const against = comparesModels() ? comparedModel() : null;
  const surprisals = state.mode === "words" ? words.map((_, i) => wordSurprisal(i, state.model)) : [];
  spans.forEach((span, i) => {
    span.surprisal = surprisals[wordOfSpan[i]];
    span.beginsWord = words[wordOfSpan[i]][0] === i && span.text.trim() !== "";
  });
  for (const span of spans) {
    const classes = spanClasses(span, against);
    span.marked = /gained|lost|first-only/.test(classes.join());
    if (state.mode === "ranks") span.marked = worstRank(span, state.model) > 100;
    if (state.mode === "words") span.marked = span.surprisal > WORD_CLASS_ENDS[2] && span.beginsWord;
    span.elements.forEach((node, i) => (node.className = classes[i] + (span.text.includes("\n") ? " line" : "")));
  }
  const counts = { gained: 0, closer: 0, further: 0, lost: 0 };
  if (against !== null) {
    doc.models[state.model].rank.forEach((rank, i) => {
      const change = rankChange(rank, doc.models[against].rank[i]);
      if (change) counts[change]++;
    });
  }
  markMatches();
  markSelected();
  showBar(against, counts);
  showDocumentList();
  showToken();
  writeAddress();
}

// Returns whether the mode compares the chosen model with another one.
function comparesModels() {
  return state.mode === "changes" || state.mode === "pair";
}

// Returns the CSS classes of the elements of a span: one element, or two in the mode "side by side".
function spanClasses(span, against) {
  if (state.mode === "words") return [Number.isNaN(span.surprisal) ? "unscored" : `class${wordClass(span.surprisal)}`];
  const rank = worstRank(span, state.model);
  if (!rank) return span.elements.map(() => "unscored");
  const before = against === null ? 0 : worstRank(span, against);
  if (state.mode === "changes") return [against === null ? "" : rankChange(rank, before)];
  if (state.mode === "ranks") return [`class${rankClass(rank)}`];
  const leftMark = before === 1 && rank > 1 ? " first-only" : "";
  const rightMark = rank === 1 && before > 1 ? " first-only" : "";
  return [`class${rankClass(before)}${leftMark}`, `class${rankClass(rank)}${rightMark}`];
}

function showBar(against, counts) {
  const { mode, model } = state;
  for (const button of document.querySelectorAll(".choice button")) {
    button.setAttribute("aria-checked", button.value === mode);
    button.tabIndex = button.value === mode ? 0 : -1;
  }
  $("model").value = model;
  $("model").setAttribute("aria-valuetext", textSet.models[model].name);
  $("against-label").hidden = !comparesModels();
  $("against-word").textContent = mode === "pair" ? "left" : "against";
  const { smaller, earlier } = textSet.models[model];
  let automatic = `next smaller: ${smaller === null ? "none on this page" : textSet.models[smaller].name}`;
  if (earlier !== null) automatic = `earlier checkpoint: ${textSet.models[earlier].name}`;
  if (mode === "pair") automatic = `${textSet.models[defaultPairModel()].name} (automatic)`;
  $("against").options[0].textContent = automatic;
  $("against").value = state.against;
  $("name").textContent = textSet.models[model].title;
  $("columns").hidden = mode !== "pair";
  if (mode === "pair") {
    [...$("columns").children].forEach((heading, i) => (heading.textContent = textSet.models[i ? model : against].title));
    for (const row of $("text").children) {
      [...row.children].forEach((part, i) => (part.dataset.model = textSet.models[i ? model : against].name));
    }
  }
  $("marked-name").textContent = MARKED_NAMES[mode];
  $("answer").textContent = answerText(against, counts);
  showKey(against, counts);
  showStrip(against);
  measureBar();
}

// Tells the style sheet the height of the bar, and the height of its controls, which scroll away on a phone.
function measureBar() {
  const style = document.documentElement.style;
  style.setProperty("--below", `${$("bar").offsetHeight + 10}px`);
  style.setProperty("--controls", `${document.querySelector(".controls").offsetHeight + 8}px`);
}

function answerText(against, counts) {
  const rbpText = (model, k) => {
    const ranks = doc.models[model].rank;
    return formatShare(ranks.filter((rank) => rank <= k).length, ranks.length);
  };
  if (state.mode === "words") return wordsAnswer();
  const first = rbpText(state.model, 1);
  if (state.mode === "ranks") {
    const tokens = doc.shown < doc.tokens ? "the tokens shown" : "its tokens";
    return `ranks ${first} of ${tokens} first and ${rbpText(state.model, 10)} among its first 10.`;
  }
  if (against === null) {
    return "has no smaller model of its family on this page, and no earlier checkpoint. Choose another model to compare it with.";
  }
  const changed = `${counts.gained.toLocaleString("en")} tokens gained, ${counts.lost.toLocaleString("en")} lost`;
  return `ranks ${first} of the tokens first, ${textSet.models[against].name} ${rbpText(against, 1)}: ${changed}.`;
}

function wordsAnswer() {
  const surprisals = surprisalsOfWords(state.model);
  if (!surprisals.length) return "scored all tokens of no word between blanks.";
  const mean = surprisals.reduce((sum, surprisal) => sum + surprisal, 0) / surprisals.length;
  return `needs ${mean.toFixed(2)} nats for a word on average (${surprisals.length.toLocaleString("en")} words between blanks).`;
}

function showKey(against, counts) {
  const createEntry = (className, name, text = "") => {
    const item = element("li");
    item.append(element("span", name, className), element("small", text));
    return item;
  };
  const otherEntries = doc.scored.length < doc.shown ? [createEntry("unscored", "not scored")] : [];
  if (state.mode === "changes") {
    const entries = Object.entries(CHANGE_NAMES).map(([name, title]) => createEntry(name, title, formatShare(counts[name], doc.scored.length)));
    $("key").replaceChildren(...(against === null ? [] : entries), ...otherEntries);
    return;
  }
  if (state.mode === "words") {
    const wordCounts = [0, 0, 0, 0, 0];
    for (const surprisal of surprisalsOfWords(state.model)) wordCounts[wordClass(surprisal)]++;
    const wordShares = roundedShares(wordCounts);
    $("key").replaceChildren(...WORD_CLASS_NAMES.map((name, i) => createEntry(`class${i}`, name, wordShares[i])), ...otherEntries);
    return;
  }
  const shares = roundedShares(rankClassCounts(state.model));
  const entries = RANK_CLASS_NAMES.map((name, i) => createEntry(`class${i}`, name, state.mode === "pair" ? "" : shares[i]));
  if (state.mode === "pair") otherEntries.unshift(createEntry("first-only", "first on this side only"));
  $("key").replaceChildren(...entries, ...otherEntries);
}

// Counts the tokens of the document in each class of rank.
function rankClassCounts(model) {
  const counts = [0, 0, 0, 0, 0];
  for (const rank of doc.models[model].rank) counts[rankClass(rank)]++;
  return counts;
}

// Returns the CSS class of a model in the strip and in the table of models.
function modelClass(model, against) {
  if (model === state.model) return "chosen";
  return model === against ? "other" : "";
}

// Draws a column for each model, with the shares of the classes of rank: the best class below, the worst above.
function showStrip(against) {
  const columns = textSet.models.map((model, i) => {
    const column = element("div");
    column.title = model.name;
    column.dataset.model = i;
    column.className = modelClass(i, against);
    rankClassCounts(i).reverse().forEach((count, j) => {
      const part = element("i", "", `class${4 - j}`);
      part.style.flexGrow = count;
      column.append(part);
    });
    return column;
  });
  $("strip").replaceChildren(...columns);
  const names = textSet.models.map((model, i) => {
    const name = element("span", model.name, i === state.model ? "chosen" : "");
    name.dataset.model = i;
    return name;
  });
  $("names").replaceChildren(...names);
  $("names").classList.toggle("ends", $("bar").clientWidth / names.length < 70); // there is room for two names only
  $("model").style.setProperty("--inset", `calc(${50 / names.length}% - 8px)`); // puts the knob below the model's column
}

function showDocumentList() {
  const { model } = state;
  const sortColumn = document.querySelector("#documents th button[aria-pressed='true']")?.value ?? "place";
  const { documents } = textSet;
  const order = documents.map((_, i) => i);
  if (sortColumn === "ce") order.sort((i, j) => documents[j].ce[model] - documents[i].ce[model]);
  if (sortColumn === "rbp") order.sort((i, j) => documents[i].rbp[model] - documents[j].rbp[model]);
  const rows = order.map((i) => {
    const { id, tokens, ce, rbp } = documents[i];
    const row = element("tr");
    row.dataset.document = i;
    if (i === state.document) row.setAttribute("aria-current", "true");
    const name = element("td");
    const button = element("button", id);
    button.type = "button";
    const details = [reasonText(documents[i]), `${tokens.toLocaleString("en")} tokens`];
    if (matchCounts[i]) details.push(`${matchCounts[i].toLocaleString("en")} found`);
    name.append(button, element("small", details.filter(Boolean).join(" · ")));
    row.append(name, element("td", ce[model].toFixed(2), "number"), element("td", formatShare(rbp[model], 1), "number"));
    return row;
  });
  document.querySelector("#documents tbody").replaceChildren(...rows);
}

// The selected token

function selectSpan(span, { pin = false, scroll = false } = {}) {
  if (span < 0 || span >= spans.length) return;
  selected = span;
  isPinned = pin;
  markSelected();
  showToken();
  if (scroll) reveal(spans[span].elements[0]);
  if (pin) writeAddress();
}

// Scrolls an element into the part of the window that the bar and, on a phone, the details of a token do not cover.
function reveal(node) {
  const box = node.getBoundingClientRect();
  const details = document.querySelector("aside");
  const top = $("bar").getBoundingClientRect().bottom + 8;
  const covered = getComputedStyle(details).position === "fixed" ? details.offsetHeight : 0;
  const isVisible = box.top >= top && box.bottom <= innerHeight - covered - 8;
  if (!isVisible) scrollBy(0, box.top - top - (innerHeight - top - covered) / 3);
}

function markSelected() {
  for (const node of $("text").querySelectorAll(".selected")) node.classList.remove("selected", "pinned");
  if (selected < 0) return;
  for (const node of spans[selected].elements) {
    node.classList.add("selected");
    node.classList.toggle("pinned", isPinned);
  }
}

// Shows the tokens of the selected span with their ranks in every model.
function showToken() {
  document.querySelector("aside").classList.toggle("open", selected >= 0 && isPinned);
  if (selected < 0) {
    $("details").replaceChildren();
    return;
  }
  const { from, size, text } = spans[selected];
  const heading = element("p", "", "word");
  heading.append(element("mark", visibleText(text)));
  const parts = [heading];
  if (state.mode === "words") parts.push(...wordDetails(wordOfSpan[selected]));
  const shared = `${size} tokens share this text, because one of its characters is split over several tokens.`;
  if (size > 1) parts.push(element("p", shared, "about-token"));
  for (let token = from; token < from + size; token++) parts.push(...tokenDetails(token));
  $("details").replaceChildren(...parts);
}

// Shows a word with the surprisal and the probability that every model gives it.
function wordDetails(word) {
  const [first, end] = words[word];
  const wordText = spans.slice(first, end).map(({ text }) => text).join("");
  const size = spans[end - 1].from + spans[end - 1].size - spans[first].from;
  const about = element("p", `The word “${wordText.trim()}” has ${size} ${size === 1 ? "token" : "tokens"}. Below: its surprisal, then one of its tokens.`, "about-token");
  if (Number.isNaN(wordSurprisal(word, state.model))) return [about, element("p", "One of its tokens is not scored.", "about-token")];
  const heads = [element("th", "nats", "number"), element("th", "p", "number")];
  const table = modelTable(heads, null, (model) => {
    const surprisal = wordSurprisal(word, model);
    const nats = colouredCell(surprisal.toFixed(2), wordClass(surprisal));
    return [nats, element("td", probabilityText(surprisal / data.step), "number")];
  });
  return [about, table];
}

function tokenDetails(token) {
  const index = scoredIndex[token];
  const position = `token ${(token + 1).toLocaleString("en")} of ${doc.shown.toLocaleString("en")}`;
  if (index < 0) {
    return [element("p", `${position}, not scored: the model reads this token, but metrics do not count it.`, "about-token")];
  }
  const parts = [element("p", position, "about-token"), rankTable(index)];
  const prediction = doc.models[state.model];
  if (prediction.reference_rank) {
    const reference = element("p", "The reference ranks ", "about-token");
    reference.append(element("code", visibleText(textSet.strings[prediction.reference_top[index]])));
    const rank = prediction.reference_rank[index].toLocaleString("en");
    reference.append(` first, which has rank ${rank} in ${textSet.models[state.model].name}.`);
    parts.push(reference);
  }
  return parts;
}

// Returns a table of the rank, the probability and the first choice of every model at a scored token.
function rankTable(index) {
  const heads = [element("th", "rank", "number"), element("th", "p", "number"), element("th", "ranks first")];
  return modelTable(heads, comparesModels() ? comparedModel() : null, (model) => {
    const prediction = doc.models[model];
    const rank = prediction.rank[index];
    const probability = element("td", probabilityText(prediction.nll_steps[index]), "number");
    return [colouredCell(rank.toLocaleString("en"), rankClass(rank)), probability, firstChoiceCell(prediction, index)];
  });
}

// Returns a table with a row for each model: its name, and the cells that `makeCells` returns for its index.
function modelTable(heads, against, makeCells) {
  const table = element("table", "", "models");
  table.append(element("thead"), element("tbody"));
  table.tHead.append(element("tr"));
  table.tHead.rows[0].append(element("th", "model"), ...heads);
  textSet.models.forEach((model, i) => {
    const row = element("tr", "", modelClass(i, against));
    row.append(element("td", model.name), ...makeCells(i));
    table.tBodies[0].append(row);
  });
  return table;
}

// Returns a cell with a number in the colour of a class.
function colouredCell(text, index) {
  const cell = element("td", "", "number");
  cell.append(element("span", text, `rank class${index}`));
  return cell;
}

function firstChoiceCell(prediction, index) {
  const cell = element("td");
  if (prediction.rank[index] === 1) {
    cell.append(element("span", "this token", "same"));
  } else if (prediction.top) {
    prediction.topIndex ??= topIndices(prediction.rank);
    cell.append(element("code", visibleText(textSet.strings[prediction.top[prediction.topIndex[index]]])));
  }
  return cell;
}

// Returns the index of each scored token in `top`, which holds only the tokens with a rank above 1; -1 for the others.
function topIndices(ranks) {
  let count = 0;
  return ranks.map((rank) => (rank > 1 ? count++ : -1));
}

// Replaces line breaks, tabs and outer spaces of a text by visible signs.
function visibleText(text) {
  const shown = text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "␍");
  return shown.replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length)) || "(empty)";
}

// Numbers

function formatShare(part, total) {
  return total ? `${((100 * part) / total).toFixed(1)}%` : "–";
}

// Returns the shares of the classes of rank as texts. The cumulative shares are rounded, not the single ones. The texts
// therefore add up to 100%, and agree with the shares of "first" and "among its first 10" in the answer.
function roundedShares(counts) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let sum = 0;
  let previous = 0;
  return counts.map((count) => {
    if (!total) return formatShare(count, total);
    sum += count;
    const cumulative = Math.round((1000 * sum) / total);
    const permille = cumulative - previous;
    previous = cumulative;
    return formatShare(permille, 1000);
  });
}

// Formats a probability. The page stores -ln p as a whole number of steps.
function probabilityText(steps) {
  const p = Math.exp(-steps * data.step);
  if (p >= 0.001) return `${Number((100 * p).toPrecision(2))}%`;
  const [mantissa, exponent] = p.toExponential(0).split("e");
  return `${mantissa}·10${[...exponent].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit] ?? "⁻").join("")}`;
}

// Search

// Returns the index of each match of a text in lower case, as an index of letters in the joined texts.
function findMatches(texts, wanted) {
  const whole = texts.join("").toLowerCase();
  const matches = [];
  for (let i = whole.indexOf(wanted); i >= 0; i = whole.indexOf(wanted, i + wanted.length)) matches.push(i);
  return matches;
}

function search() {
  const wanted = $("search").value.toLowerCase();
  matchSpans = [];
  currentMatch = -1;
  matchCounts = textSet.documents.map(({ texts }) => (wanted ? findMatches(texts, wanted).length : 0));
  if (wanted) {
    const ends = []; // for each span, the index of the letter after it
    let length = 0;
    for (const text of doc.texts) {
      length += text.toLowerCase().length;
      ends.push(length);
    }
    let first = 0;
    for (const begin of findMatches(doc.texts, wanted)) {
      while (ends[first] <= begin) first++;
      let last = first;
      while (ends[last] < begin + wanted.length) last++;
      matchSpans.push([first, last]);
    }
  }
  showMatchCount();
}

function showMatchCount() {
  const elsewhere = matchCounts.reduce((sum, count) => sum + count, 0) - matchSpans.length;
  let text = "";
  if ($("search").value) text = matchSpans.length ? `${Math.max(currentMatch, 0) + 1}/${matchSpans.length}` : "none here";
  if (elsewhere) text += ` +${elsewhere}`;
  $("found").textContent = text;
  $("found").title = elsewhere ? `${elsewhere} in other documents. Enter goes to the next match, also in other documents.` : "";
}

function markMatches() {
  for (const node of $("text").querySelectorAll(".match")) node.classList.remove("match", "current");
  matchSpans.forEach(([first, last], i) => {
    for (let j = first; j <= last; j++) {
      for (const node of spans[j].elements) {
        node.classList.add("match");
        if (i === currentMatch) node.classList.add("current");
      }
    }
  });
}

// Goes to the next match (step 1) or the previous match (step -1), in this document or in another.
function goToMatch(step) {
  if (!matchCounts.some(Boolean)) return;
  const next = currentMatch < 0 && step > 0 ? 0 : currentMatch + step;
  if (next >= 0 && next < matchSpans.length) {
    currentMatch = next;
  } else {
    const count = textSet.documents.length;
    do state.document = (state.document + step + count) % count;
    while (!matchCounts[state.document]);
    showDocument();
    currentMatch = step > 0 ? 0 : matchSpans.length - 1;
  }
  markMatches();
  showMatchCount();
  reveal(spans[matchSpans[currentMatch][0]].elements[0]);
}

// Actions of the reader

function chooseModel(model) {
  state.model = Math.min(Math.max(model, 0), textSet.models.length - 1);
  paint();
}

function chooseMode(mode) {
  const changesLayout = (mode === "pair") !== (state.mode === "pair");
  state.mode = mode;
  const pinnedSpan = isPinned ? selected : -1;
  if (changesLayout) layOutText();
  else paint();
  if (pinnedSpan >= 0) selectSpan(pinnedSpan, { pin: true });
}

function spanAtEvent(event) {
  const node = event.target.closest?.("[data-i]");
  return node ? Number(node.dataset.i) : -1;
}

// Returns the index of the next (step 1) or previous (step -1) marked span, or -1.
function nextMarkedSpan(step) {
  for (let i = selected + step; i >= 0 && i < spans.length; i += step) if (spans[i].marked) return i;
  return -1;
}

function onTextKey(event) {
  const isRightToLeft = selected >= 0 && getComputedStyle(spans[selected].elements[0]).direction === "rtl";
  const forward = isRightToLeft ? -1 : 1;
  const moves = {
    ArrowRight: () => selected + forward,
    ArrowLeft: () => selected - forward,
    Home: () => 0,
    End: () => spans.length - 1,
  };
  const move = moves[event.key];
  if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  selectSpan(selected < 0 ? 0 : move(), { pin: true, scroll: true });
}

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || /INPUT|SELECT/.test(event.target.tagName)) return;
  if (event.key === "[") chooseModel(state.model - 1);
  else if (event.key === "]") chooseModel(state.model + 1);
  else if (event.key === "n") selectSpan(nextMarkedSpan(1), { pin: true, scroll: true });
  else if (event.key === "p") selectSpan(nextMarkedSpan(-1), { pin: true, scroll: true });
  else if (event.key === "/") $("search").focus();
  else if (event.key === "Escape") clearSelection();
  else return;
  event.preventDefault();
}

function clearSelection() {
  selected = -1;
  isPinned = false;
  markSelected();
  showToken();
  writeAddress();
}

function addListeners() {
  $("model").addEventListener("input", () => chooseModel(Number($("model").value)));
  for (const id of ["strip", "names"]) {
    $(id).addEventListener("click", (event) => {
      const column = event.target.closest("[data-model]");
      if (column) chooseModel(Number(column.dataset.model));
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
  const sortButtons = document.querySelectorAll("#documents th button");
  for (const clicked of sortButtons) {
    clicked.addEventListener("click", () => {
      for (const button of sortButtons) button.setAttribute("aria-pressed", button === clicked);
      showDocumentList();
    });
  }
  $("search").addEventListener("input", () => {
    search();
    if (matchSpans.length) currentMatch = 0;
    markMatches();
    showMatchCount();
    showDocumentList();
    if (matchSpans.length) reveal(spans[matchSpans[0][0]].elements[0]);
  });
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    goToMatch(event.shiftKey ? -1 : 1);
  });
  const text = $("text");
  text.addEventListener("pointerover", (event) => {
    const span = spanAtEvent(event);
    if (span >= 0 && !isPinned && event.pointerType === "mouse") selectSpan(span);
  });
  text.addEventListener("click", (event) => {
    const span = spanAtEvent(event);
    if (span < 0 || !getSelection().isCollapsed) return;
    if (isPinned && span === selected) clearSelection();
    else selectSpan(span, { pin: true });
  });
  text.addEventListener("keydown", onTextKey);
  $("close").addEventListener("click", clearSelection);
  addEventListener("keydown", onKey);
  addEventListener("resize", measureBar);
}
