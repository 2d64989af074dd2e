// Draws what explorer.py sends: a grid of heads, the chosen head's map and its lines between words.
// Nothing is fetched; numbers come from Python, and choices go back to it as traits.

// matplotlib's cividis from low to high, which looks alike to all kinds of colour vision.
const CIVIDIS = [
  [0, 34, 78], [8, 51, 112], [53, 69, 108], [79, 87, 108], [102, 105, 112], [125, 124, 120],
  [148, 142, 119], [174, 163, 113], [200, 184, 102], [229, 207, 82], [254, 232, 56],
];
const SVG = "http://www.w3.org/2000/svg";
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const ROW = 22; // pixels of a word in the lines' columns
const MIDDLE = 100; // pixels between the columns
const LEAST = 0.02; // weights below are not drawn as lines
const CHOICES = ["text", "measure", "layer", "head"];
const NAMES = [...CHOICES, "texts", "measures", "typed", "message"];
let views = 0;

function rgb(share) {
  const place = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
  return CIVIDIS[low].map((c, i) => Math.round(c + (place - low) * (CIVIDIS[low + 1][i] - c)));
}

const css = (colour) => `rgb(${colour.join(" ")})`;
const ink = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 128 ? "#000" : "#fff");
const clamp = (value, last) => Math.min(Math.max(value, 0), last);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const make = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** The weights of all heads for one text, as numbers from 0 to 65535. */
function unpack(view) {
  return new Uint16Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
}

/** The smallest and largest value of a measure, and how many decimals tell its values apart. */
function scale(measure) {
  const values = measure.values.flat().filter((value) => value !== null);
  const [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
  const largest = Math.max(Math.abs(low), Math.abs(high));
  const tiny = largest > 0 && largest < 0.095;
  const decimals = tiny ? Math.min(6, 1 - Math.floor(Math.log10(largest))) : 2;
  const format = (value) => (value === null ? "no value" : value.toFixed(decimals));
  const short = (value) => {
    if (value === null || tiny) return "";
    if (largest >= 1.005) return value.toFixed(largest < 99.5 ? 1 : 0);
    return value.toFixed(2).replace(/^(-?)0/, "$1");
  };
  const share = (value) => (high > low ? (value - low) / (high - low) : 0);
  return { low, high, format, short, share };
}

/** The three largest values with their names, in words. */
function top(values, names) {
  return values.map((value, i) => [value, names[i]]).sort((a, b) => b[0] - a[0]).slice(0, 3)
    .map(([value, name]) => `${name} ${value.toFixed(2)}`).join(", ");
}

/** The choices above the grid: a sentence of the list, one of the learner's own, a measure. */
function controls(model, id) {
  const select = make("select", { id: `${id}-text` });
  select.addEventListener("change", () => choose(model, { text: select.selectedIndex }));
  const typed = make("input", { id: `${id}-typed`, type: "text", placeholder: "type a sentence" });
  const message = make("p", { class: "message", role: "alert" });
  const form = make("form", {},
    make("label", { for: `${id}-typed` }, "Your own"), typed, make("button", {}, "Look"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    choose(model, { typed: typed.value.trim() });
  });
  const chips = make("div", { class: "chips", role: "radiogroup", "aria-label": "Measure" });
  const about = make("p", { class: "about" });

  function update(was) {
    const texts = model.get("texts");
    if (select.options.length !== texts.length)
      select.replaceChildren(...texts.map((entry) => make("option", {}, entry.text)));
    select.selectedIndex = model.get("text");
    if (was.typed && !model.get("typed")) typed.value = "";
    message.textContent = model.get("message");
    const measures = model.get("measures");
    if (was.measures !== measures)
      chips.replaceChildren(...measures.map(({ name }, i) => {
        const radio = make("input", { type: "radio", name: `${id}-measure`, id: `${id}-m${i}` });
        radio.value = name;
        radio.addEventListener("change", () => choose(model, { measure: name }));
        return make("span", {}, radio, make("label", { for: radio.id }, name));
      }));
    for (const radio of chips.querySelectorAll("input"))
      radio.checked = radio.value === model.get("measure");
    about.textContent = measures.find(({ name }) => name === model.get("measure")).about;
  }
  const node = make("div", { class: "controls" },
    make("div", { class: "line" }, make("label", { for: `${id}-text` }, "Sentence"), select),
    form, message,
    make("div", { class: "line" }, make("span", {}, "Colour by"), chips), about);
  return { node, update };
}

/** Layers × heads as buttons in a grid with one tab stop: arrows move, Enter or Space chooses. */
function headGrid(model, id) {
  const rows = model.get("measures")[0].values;
  const cells = rows.map((row, layer) => row.map((_, head) => {
    const cell = make("button", { type: "button", role: "gridcell", class: "head", tabindex: -1 });
    cell.addEventListener("click", () => choose(model, { layer, head }));
    cell.addEventListener("focus", () => { rove(layer, head); tell(layer, head); });
    cell.addEventListener("mouseenter", () => tell(layer, head));
    return cell;
  }));
  const numbers = rows[0].map((_, head) => make("span", { role: "columnheader" }, `${head + 1}`));
  const last = [rows.length - 1, rows[0].length - 1];
  const grid = make("div", { role: "grid", class: "grid", "aria-labelledby": `${id}-grid` },
    make("div", { role: "row" }, make("span", { role: "columnheader" }, "layer"), ...numbers),
    ...cells.map((row, layer) =>
      make("div", { role: "row" }, make("span", { role: "rowheader" }, `${layer + 1}`), ...row)));
  const [low, high, readout] = [make("span"), make("span"), make("p", { class: "readout" })];
  const bar = make("span", { class: "bar" });
  bar.style.background = `linear-gradient(to right, ${CIVIDIS.map(css).join(", ")})`;
  let place = [model.get("layer"), model.get("head")];

  function rove(layer, head) {
    cells[place[0]][place[1]].tabIndex = -1;
    place = [layer, head];
    cells[layer][head].tabIndex = 0;
  }
  function tell(layer, head) {
    readout.textContent = cells[layer][head].getAttribute("aria-label");
  }
  function tellPlace() {
    const focused = cells.flat().includes(document.activeElement);
    tell(...(focused ? place : [model.get("layer"), model.get("head")]));
  }
  grid.addEventListener("mouseleave", tellPlace);
  grid.addEventListener("focusout", () => queueMicrotask(tellPlace));
  grid.addEventListener("keydown", (event) => {
    let [layer, head] = place;
    if (event.altKey || event.metaKey) return;
    if (event.key in MOVES && !event.ctrlKey) {
      layer += MOVES[event.key][0];
      head += MOVES[event.key][1];
    } else if (event.key === "Home") [layer, head] = [event.ctrlKey ? 0 : layer, 0];
    else if (event.key === "End") [layer, head] = [event.ctrlKey ? last[0] : layer, last[1]];
    else return;
    event.preventDefault();
    event.stopPropagation();
    cells[clamp(layer, last[0])][clamp(head, last[1])].focus();
  });

  function update() {
    const measure = model.get("measures").find(({ name }) => name === model.get("measure"));
    const { share, format, short, ...ends } = scale(measure);
    const chosen = [model.get("layer"), model.get("head")];
    cells.forEach((row, layer) => row.forEach((cell, head) => {
      const value = measure.values[layer][head];
      const colour = value === null ? [150, 150, 150] : rgb(share(value));
      Object.assign(cell.style, { background: css(colour), color: ink(colour) });
      cell.textContent = short(value);
      cell.setAttribute("aria-label",
        `layer ${layer + 1} head ${head + 1}, ${measure.name} ${format(value)}`);
      cell.setAttribute("aria-selected", `${layer === chosen[0] && head === chosen[1]}`);
    }));
    if (!cells.flat().includes(document.activeElement)) rove(...chosen);
    low.textContent = format(ends.low);
    high.textContent = format(ends.high);
    tellPlace();
  }
  const node = make("section", { class: "heads" },
    make("p", { class: "title", id: `${id}-grid` }, "Heads: choose one"), grid,
    make("div", { class: "scale", "aria-hidden": "true" }, low, bar, high), readout);
  return { node, update };
}

/** One head's weights as coloured cells: rows ask, columns answer. */
function mapPanel(look) {
  const title = make("p", { class: "title" });
  const readout = make("p", { class: "readout" });
  const frame = make("div", { class: "frame" });
  frame.addEventListener("mouseover", ({ target }) => {
    const { asks, answers } = target.dataset;
    look(asks === undefined ? null : { side: "asks", row: +asks, column: +answers });
  });
  frame.addEventListener("mouseleave", () => look(null));
  let rows = [];
  let columns = [];

  function update({ tokens, weight, name }) {
    const n = tokens.length;
    const size = n <= 18 ? 17 : 14;
    const margin = 10 + 6.6 * Math.max(...tokens.map((token) => token.length));
    const side = margin + n * size;
    const at = (i) => margin + (i + 0.5) * size;
    rows = tokens.map((token, i) => draw("text",
      { x: margin - 5, y: at(i), "text-anchor": "end", "dominant-baseline": "central" }, token));
    columns = tokens.map((token, i) => draw("text", {
      transform: `translate(${at(i)} ${margin - 5}) rotate(-90)`, "dominant-baseline": "central",
    }, token));
    const cells = tokens.flatMap((_, asks) => tokens.map((_, answers) => draw("rect", {
      x: margin + answers * size, y: margin + asks * size, width: size - 1, height: size - 1,
      fill: css(rgb(weight(asks, answers))), "data-asks": asks, "data-answers": answers,
    })));
    const pairs = tokens.flatMap((from) => tokens.map((to) => `${from} to ${to}`));
    const strongest = top(tokens.flatMap((_, i) => tokens.map((_, j) => weight(i, j))), pairs);
    const label = `Attention map of ${name.toLowerCase()}. Strongest: ${strongest}.`;
    const about = { width: side, height: side, role: "img", "aria-label": label };
    frame.replaceChildren(draw("svg", about, ...rows, ...columns, ...cells));
    title.textContent = name;
  }
  function mark(spot, { tokens, weight }) {
    rows.forEach((row, i) => row.classList.toggle("on", spot?.side === "asks" && spot.row === i));
    const column = spot?.side === "answers" ? spot.row : spot?.column;
    columns.forEach((label, i) => label.classList.toggle("on", column === i));
    readout.textContent = spot?.column === undefined
      ? "rows ask, columns answer; dark 0, yellow 1"
      : `${tokens[spot.row]} → ${tokens[spot.column]}: `
        + weight(spot.row, spot.column).toFixed(2);
  }
  return { node: make("section", { class: "map" }, title, frame, readout), update, mark };
}

/** Two columns of words with lines between: the left asks, the right answers. */
function linesPanel(look, id) {
  const names = { asks: "Words that ask", answers: "Words that answer" };
  const columns = Object.fromEntries(Object.entries(names).map(([side, name]) =>
    [side, make("div", { class: side, role: "listbox", "aria-label": name })]));
  const middle = draw("svg", { width: MIDDLE, "aria-hidden": "true" });
  let words = { asks: [], answers: [] };
  let shown = null; // the tokens whose words are there

  function listen(word, side, row) {
    word.addEventListener("mouseenter", () => look({ side, row }));
    word.addEventListener("mouseleave", () => look(null));
    word.addEventListener("blur", () => look(null));
    word.addEventListener("focus", () => {
      for (const other of words[side]) other.tabIndex = other === word ? 0 : -1;
      look({ side, row });
    });
    word.addEventListener("keydown", (event) => {
      if (event.altKey || event.metaKey || event.ctrlKey) return;
      const last = words[side].length - 1;
      const to = { ArrowUp: row - 1, ArrowDown: row + 1, Home: 0, End: last }[event.key];
      const across = { ArrowLeft: "asks", ArrowRight: "answers" }[event.key];
      if (to === undefined && !across) return;
      event.preventDefault();
      event.stopPropagation();
      words[across ?? side][across ? row : clamp(to, last)].focus();
    });
  }
  function update({ tokens }) {
    if (shown === tokens) return;
    shown = tokens;
    for (const side of Object.keys(words)) {
      words[side] = tokens.map((token, row) => {
        const word = make("div", { role: "option", tabindex: row ? -1 : 0, class: "word" },
          make("span", { class: "token" }, token), make("span", { class: "weight" }));
        listen(word, side, row);
        return word;
      });
      columns[side].replaceChildren(...words[side]);
    }
    middle.setAttribute("height", tokens.length * ROW);
  }
  function mark(spot, { tokens, weight }) {
    const other = spot?.side === "asks" ? "answers" : "asks";
    const between = (row) => (other === "answers" ? weight(spot.row, row) : weight(row, spot.row));
    for (const side of Object.keys(words)) words[side].forEach((word, row) => {
      const here = spot?.side === side && spot.row === row;
      const value = spot && side === other ? between(row) : null;
      word.setAttribute("aria-selected", `${here}`);
      word.style.setProperty("--weight", value ?? 0);
      word.lastChild.textContent = value === null ? "" : value.toFixed(2);
      word.setAttribute("aria-label", side === "asks"
        ? `${tokens[row]} attends to ${top(tokens.map((_, j) => weight(row, j)), tokens)}`
        : `${tokens[row]} is attended to by ${top(tokens.map((_, i) => weight(i, row)), tokens)}`);
    });
    const paths = [];
    tokens.forEach((_, asks) => tokens.forEach((_, answers) => {
      const value = weight(asks, answers);
      if (value < LEAST) return;
      const [from, to] = [(asks + 0.5) * ROW, (answers + 0.5) * ROW];
      const off = spot && (spot.side === "asks" ? asks : answers) !== spot.row;
      paths.push(draw("path", {
        d: `M0 ${from} C${MIDDLE * 0.4} ${from} ${MIDDLE * 0.6} ${to} ${MIDDLE} ${to}`,
        "stroke-width": 0.5 + 7 * value, class: off ? "off" : "",
        "stroke-opacity": off ? 0.06 : 0.25 + 0.75 * value,
      }));
    }));
    middle.replaceChildren(...paths);
  }
  const node = make("section", { class: "lines", role: "group", "aria-labelledby": `${id}-lines` },
    make("p", { class: "title", id: `${id}-lines` }, "Left asks, right answers"),
    make("div", { class: "frame" }, columns.asks, middle, columns.answers),
    make("p", { class: "readout" }, "thickness = weight; hover or focus a word"));
  return { node, update, mark };
}

function choose(model, traits) {
  for (const [name, value] of Object.entries(traits)) model.set(name, value);
  model.save_changes();
}

/** In command mode JupyterLab would take plain keys to move between cells, or to delete one. */
function keepKeys(event) {
  const command = event.ctrlKey || event.metaKey || event.altKey;
  const runs = event.shiftKey && event.key === "Enter";
  if (!command && !runs && !["Escape", "Tab"].includes(event.key)) event.stopPropagation();
}

function render({ model, el }) {
  const id = `mhalib-heads-${++views}`;
  const look = (spot) => panels.forEach((panel) => panel.mark(spot ?? focused(), current));
  const above = controls(model, id);
  const grid = headGrid(model, id);
  const map = mapPanel(look);
  const lines = linesPanel(look, id);
  const panels = [map, lines];
  const panelsNode = make("div", { class: "panels" }, grid.node, map.node, lines.node);
  const live = make("div", { class: "live", role: "status" });
  let current = null; // tokens, weight(asks, answers) and name of what is drawn
  let was = {};

  function focused() {
    const word = document.activeElement?.closest?.(".word");
    if (!word || !lines.node.contains(word)) return null;
    return { side: word.parentNode.className, row: [...word.parentNode.children].indexOf(word) };
  }
  function update() {
    const now = Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
    const { tokens, weights } = now.texts[now.text];
    const heads = now.measures[0].values[0].length;
    const n = tokens.length;
    const start = (now.layer * heads + now.head) * n * n;
    const same = was.texts === now.texts && was.text === now.text;
    const numbers = same ? current.numbers : unpack(weights);
    current = {
      tokens, numbers, name: `Layer ${now.layer + 1}, head ${now.head + 1}`,
      weight: (asks, answers) => numbers[start + asks * n + answers] / 65535,
    };
    above.update(was);
    grid.update();
    panels.forEach((panel) => panel.update(current));
    look(null);
    panelsNode.classList.toggle("long", n > 18);
    if (was.texts && CHOICES.some((name) => was[name] !== now[name]))
      live.textContent = announcement(was, now);
    was = now;
  }
  let waiting = false;
  function soon() {
    if (!waiting) queueMicrotask(() => { waiting = false; update(); });
    waiting = true;
  }
  el.classList.add("mhalib-heads");
  el.addEventListener("keydown", keepKeys);
  el.append(above.node, panelsNode, live);
  update();
  for (const name of NAMES) model.on(`change:${name}`, soon);
  return () => NAMES.forEach((name) => model.off(`change:${name}`, soon));
}


/** What the live region says after a change. */
function announcement(was, now) {
  const measure = now.measures.find(({ name }) => name === now.measure);
  const value = scale(measure).format(measure.values[now.layer][now.head]);
  const head = `Layer ${now.layer + 1} head ${now.head + 1} selected, ${now.measure} ${value}.`;
  if (now.text !== was.text) return `Sentence: ${now.texts[now.text].text} ${head}`;
  if (now.measure !== was.measure) return `Coloured by ${now.measure}. ${measure.about}`;
  return head;
}

export default { render };
