// The part of Markdown that language models write, as elements: no markup of the text itself ever counts, links lead to the web alone.
//
// Blocks that have not changed keep their elements, so that an answer of any length costs its last block for each piece that comes.
import { el } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/;

const MOST_DEPTH = 6;
const LONG = 2000;  // a longer line is no heading, rule or table

// Brings `parent` up to date with `text`.
export function render(parent, text, depth = 0) {
  const blocks = split(text, depth);
  const old = parent.blocks ?? [];
  let same = 0;
  while (same < old.length && same < blocks.length && old[same] === blocks[same].key) ++same;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  for (const block of blocks.slice(same)) parent.append(block.make());
  parent.blocks = blocks.map((block) => block.key);
}

function split(text, depth) {
  const lines = text.split("\n");
  const blocks = [];
  const add = (kind, source, make) => blocks.push({ key: kind + "\n" + source, make });
  let i = 0;
  const gather = (goesOn) => {
    const begin = i++;
    while (i < lines.length && goesOn(lines[i], i)) ++i;
    return lines.slice(begin, i);
  };
  while (i < lines.length) {
    const line = lines[i];
    if (line.trim() === "") {
      ++i;
      continue;
    }
    const fence = FENCE.exec(line);
    if (fence) {
      const begin = ++i;
      const closes = (l) => l.trim().startsWith(fence[1]) && l.trim().replaceAll(fence[1][0], "") === "";
      while (i < lines.length && !closes(lines[i])) ++i;
      const code = lines.slice(begin, i++).join("\n");
      add("code", fence[2] + "\n" + code, () => codeBlock(code, fence[2]));
      continue;
    }
    const short = line.length < LONG;
    const heading = short ? HEADING.exec(line) : null;
    if (heading) {
      ++i;
      add("heading", line, () => el(`h${Math.min(heading[1].length, 4)}`, {}, ...inline(heading[2])));
      continue;
    }
    if (short && RULE.test(line)) {
      ++i;
      add("rule", line, () => el("hr"));
      continue;
    }
    if (depth < MOST_DEPTH && QUOTE.test(line)) {
      const inner = gather((l) => QUOTE.test(l)).map((l) => l.replace(QUOTE, "")).join("\n");
      add("quote", inner, () => quote(inner, depth + 1));
      continue;
    }
    if (depth < MOST_DEPTH && ITEM.test(line)) {
      const items = gather((l, at) => goesOnInList(l, lines[at - 1], lines[at + 1] ?? ""));
      add("list", items.join("\n"), () => list(items, depth + 1));
      continue;
    }
    const next = lines[i + 1] ?? "";
    if (short && line.includes("|") && next.length < LONG && TABLE_RULE.test(next.trim())) {
      const rows = gather((l) => l.includes("|"));
      add("table", rows.join("\n"), () => table(rows));
      continue;
    }
    const paragraph = gather((l) => l.trim() !== "" && !FENCE.test(l) && !/^#{1,6} /.test(l) && !QUOTE.test(l) && !ITEM.test(l)).join("\n");
    add("paragraph", paragraph, () => el("p", {}, ...inline(paragraph)));
  }
  return blocks;
}

function goesOnInList(line, before, behind) {
  const indented = (l) => ITEM.test(l) || /^ {2,}\S/.test(l);
  if (line.trim() === "") return indented(behind);
  return indented(line) || (before.trim() !== "" && !FENCE.test(line) && !/^#{1,6} /.test(line));
}

function quote(text, depth) {
  const element = el("blockquote");
  render(element, text, depth);
  return element;
}

function codeBlock(code, language) {
  const copy = el("button", { type: "button", class: "quiet", onclick: () => navigator.clipboard?.writeText(code) }, "Copy");
  return el("div", { class: "code" }, el("pre", {}, el("code", { "data-language": language || null }, code)), copy);
}

function list(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const ordered = /\d/.test(first[2]);
  const indent = first[1].length;
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent + 1) items.push([line.slice(item[0].length)]);
    else items.at(-1).push(line);
  }
  const element = el(ordered ? "ol" : "ul", { start: ordered ? parseInt(first[2], 10) : null });
  for (const [head, ...rest] of items) {
    const widths = rest.filter((l) => l.trim() !== "").map((l) => l.length - l.trimStart().length);
    const cut = widths.length > 0 ? Math.min(...widths) : 0;
    const item = el("li", {}, ...inline(head));
    if (rest.length > 0) render(item.appendChild(el("div")), rest.map((l) => l.slice(cut)).join("\n"), depth);
    element.append(item);
  }
  return element;
}

function table(rows) {
  const cells = (row) => row.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((c) => c.trim());
  const line = (row, name) => el("tr", {}, ...cells(row).map((c) => el(name, {}, ...inline(c))));
  const body = el("tbody", {}, ...rows.slice(2).map((r) => line(r, "td")));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, line(rows[0], "th")), body));
}

const SPANS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"]];

// Text with code, emphasis and links. Where a closing mark stands is remembered, so that the time is linear in the text.
function inline(text, depth = 0) {
  const out = [];
  const places = new Map();
  const find = (mark, from) => {
    const known = places.get(mark);
    if (known === -1 || known >= from) return known;
    const at = text.indexOf(mark, from);
    places.set(mark, at);
    return at;
  };
  let plain = 0;
  const flush = (until) => {
    if (until > plain) out.push(text.slice(plain, until));
  };
  let i = 0;
  const take = (node, end) => {
    flush(i);
    out.push(node);
    i = plain = end;
  };
  scan: while (i < text.length) {
    const c = text[i];
    if (c === "\\" && /[\\`*_~[\]#|<>]/.test(text[i + 1] ?? "")) {
      flush(i);
      plain = i + 1;
      i += 2;
      continue;
    }
    if (c === "`") {
      const mark = /^`+/.exec(text.slice(i, i + 16))[0];
      const end = find(mark, i + mark.length);
      if (end > 0) take(el("code", {}, text.slice(i + mark.length, end)), end + mark.length);
      else i += mark.length;
      continue;
    }
    if (c === "[") {
      const middle = find("](", i + 1);
      const end = middle > 0 ? find(")", middle) : -1;
      const target = end > 0 && end - i < LONG ? text.slice(middle + 2, end) : "";
      if (/^(https?:\/\/|mailto:)\S+$/i.test(target)) {
        take(el("a", { href: target, target: "_blank", rel: "noopener noreferrer" }, text.slice(i + 1, middle)), end + 1);
        continue;
      }
    }
    if (depth < 4 && "*_~".includes(c)) {
      for (const [mark, name] of SPANS) {
        if (!text.startsWith(mark, i)) continue;
        const begin = i + mark.length;
        const end = find(mark, begin + 1);
        if (end < 0 || /\s/.test(text[begin] ?? " ") || /\s/.test(text[end - 1])) continue;
        take(el(name, {}, ...inline(text.slice(begin, end), depth + 1)), end + mark.length);
        continue scan;
      }
    }
    ++i;
  }
  flush(text.length);
  return out;
}
