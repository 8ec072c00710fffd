// The conversation: what was said, how it is shown, and what goes to the server.
//
// A message is {role: user | assistant | tool, content} and, of an assistant, {reasoning, calls, finish, usage, error, times}.
import * as api from "./api.js";
import { byId, el } from "./dom.js";
import { render as renderMarkdown } from "./markdown.js";
import * as settings from "./settings.js";

const KEPT = "baton.messages";
let messages = [];
let running = null;  // the AbortController of the answer that is being written

// What the server is told of a message; an answer without anything in it is left out.
function wire(message) {
  if (message.role === "user") return { role: "user", content: message.content };
  if (message.role === "tool") return { role: "tool", tool_call_id: message.call, content: message.content };
  if (message.content === "" && message.calls.length === 0) return null;
  const out = { role: "assistant", content: message.content };
  if (message.reasoning) out.reasoning_content = message.reasoning;
  const calls = message.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
  if (calls.length > 0) out.tool_calls = calls;
  return out;
}

function requestOf(all) {
  const system = settings.system();
  const told = all.map(wire).filter((m) => m !== null);
  return { ...settings.request(), messages: system === "" ? told : [{ role: "system", content: system }, ...told] };
}

function take(message, chunk) {
  if (chunk.usage) message.usage = chunk.usage;
  const choice = chunk.choices[0];
  if (!choice) return;
  const delta = choice.delta;
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (reasoning || delta.content || delta.tool_calls) message.times.first ??= performance.now();
  if (reasoning) message.reasoning += reasoning;
  if ((delta.content || delta.tool_calls) && message.reasoning) message.times.thought ??= performance.now();
  if (delta.content) message.content += delta.content;
  for (const part of delta.tool_calls ?? []) {
    const call = (message.calls[part.index] ??= { id: "", name: "", arguments: "" });
    call.id = part.id ?? call.id;
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

function keep() {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(messages));
  } catch {
    // Too long to be kept: it is lost when the page is loaded again.
  }
}

// ---- What is shown.

const views = new Map();  // message -> {root, update}

const seconds = (ms) => (ms < 950 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

function figures(message) {
  const { begin, first, end } = message.times;
  const usage = message.usage;
  const out = [];
  if (message.finish === "length") out.push("cut at its most tokens");
  if (message.finish === "stopped") out.push("stopped");
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    out.push(`${usage.prompt_tokens} tokens in${cached > 0 ? ` (${cached} cached)` : ""}, ${usage.completion_tokens} out`);
  }
  if (first) out.push(`first after ${seconds(first - begin)}`);
  if (usage && first && end > first && usage.completion_tokens > 1)
    out.push(`${(((usage.completion_tokens - 1) * 1000) / (end - first)).toFixed(1)} tokens/s`);
  return out.join(" · ");
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // it is still being written
  }
}

// Asks for what the calls of an answer gave, once it is complete.
function resultsForm(message) {
  const inputs = message.calls.map((call) => {
    const label = `Result of ${call.name}`;
    return el("textarea", { rows: 2, "aria-label": label, placeholder: label });
  });
  const answer = (event) => {
    event.preventDefault();
    message.calls.forEach((call, i) => add({ role: "tool", call: call.id, content: inputs[i].value }));
    ask();
  };
  return el("form", { onsubmit: answer }, ...inputs, el("button", { class: "main" }, inputs.length > 1 ? "Send results" : "Send result"));
}

function makeView(message) {
  if (message.role !== "assistant") {
    const label = message.role === "user" ? "You" : "Result";
    const root = el("article", { class: `message ${message.role}`, "aria-label": label }, el("div", { class: "text" }, message.content));
    return { root, update() {} };
  }
  const thought = el("div");
  const summary = el("summary", {}, "Thinking");
  const details = el("details", { class: "reasoning", hidden: true, open: true }, summary, thought);
  let touched = false;
  summary.addEventListener("click", () => (touched = true));
  const text = el("div", { class: "text" });
  const calls = el("div");
  const notice = el("p", { class: "notice", role: "alert", hidden: true });
  const note = el("span", { class: "muted small" });
  const button = (label, onclick) => el("button", { type: "button", class: "quiet small", onclick }, label);
  const again = button("Again", () => askAgain(message));
  const copy = button("Copy", () => navigator.clipboard?.writeText(message.content));
  const foot = el("div", { class: "foot", hidden: true }, note, copy, again);
  const root = el("article", { class: "message assistant", "aria-label": "Answer" }, details, text, calls, notice, foot);
  let written = 0;  // of the reasoning
  const update = () => {
    const writing = message.times.end === undefined;
    const waiting = writing && message.calls.length === 0;
    details.hidden = message.reasoning === "";
    if (message.reasoning.length > written) thought.append(message.reasoning.slice(written));
    written = message.reasoning.length;
    const thinking = writing && message.times.thought === undefined;
    if (!thinking && !touched) details.open = false;
    const spent = (message.times.thought ?? message.times.end) - message.times.first;
    summary.textContent = thinking ? "Thinking" : `Thought for ${seconds(spent)}`;
    thought.classList.toggle("waiting", waiting && thinking && message.reasoning !== "");
    text.classList.toggle("waiting", waiting && !(thinking && message.reasoning !== ""));
    renderMarkdown(text, message.content);
    const shown = message.calls.map((c) => el("div", { class: "call" }, el("b", {}, c.name), el("pre", {}, pretty(c.arguments))));
    if (message.calls.length > 0) calls.replaceChildren(...shown);
    if (!writing && message.finish === "tool_calls" && messages.at(-1) === message) calls.append(resultsForm(message));
    else calls.querySelector("form")?.remove();
    notice.hidden = !message.error;
    notice.textContent = message.error ?? "";
    foot.hidden = writing;
    note.textContent = figures(message);
    again.hidden = messages.at(-1) !== message;
  };
  return { root, update };
}

function atEnd() {
  const box = byId("messages");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
}

function toEnd() {
  byId("messages").scrollTop = byId("messages").scrollHeight;
}

function add(message) {
  messages.push(message);
  byId("messages").querySelector(".welcome")?.remove();
  const view = makeView(message);
  views.set(message, view);
  byId("messages").append(view.root);
  for (const v of views.values()) v.update();
  toEnd();
}

function showAll() {
  views.clear();
  const welcome = el("div", { class: "welcome" }, el("strong", {}, "Ask something"), "The conversation stays in this tab.");
  byId("messages").replaceChildren(...(messages.length === 0 ? [welcome] : []));
  for (const message of messages) {
    const view = makeView(message);
    views.set(message, view);
    byId("messages").append(view.root);
    view.update();
  }
  toEnd();
}

// At most one look at the message for each frame of the screen.
function scheduler(view) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      const follow = atEnd();
      view.update();
      if (follow) toEnd();
    });
  };
}

// ---- What is done.

function setRunning(controller) {
  running = controller;
  byId("send").hidden = controller !== null;
  byId("stop").hidden = controller === null;
}

async function ask() {
  if (running) return;
  const field = settings.invalid();
  const message = { role: "assistant", content: "", reasoning: "", calls: [], times: { begin: performance.now() } };
  const request = field ? null : requestOf(messages);
  add(message);
  const view = views.get(message);
  const show = scheduler(view);
  const controller = new AbortController();
  setRunning(controller);
  try {
    if (field) throw new Error(`The setting "${field.label}" cannot be sent as it is.`);
    for await (const chunk of api.chat(request, settings.key(), controller.signal)) {
      take(message, chunk);
      show();
    }
  } catch (error) {
    if (controller.signal.aborted) message.finish = "stopped";
    else message.error = error instanceof TypeError ? "The server cannot be reached." : error.message;
  }
  message.times.end = performance.now();
  setRunning(null);
  view.update();
  toEnd();
  keep();
}

function askAgain(message) {
  if (running || messages.at(-1) !== message) return;
  messages.pop();
  views.get(message).root.remove();
  views.delete(message);
  ask();
}

function fit() {
  const prompt = byId("prompt");
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

function send() {
  const prompt = byId("prompt");
  if (running || prompt.value.trim() === "") return;
  add({ role: "user", content: prompt.value });
  prompt.value = "";
  fit();
  ask();
}

export function start() {
  try {
    messages = JSON.parse(sessionStorage.getItem(KEPT)) ?? [];
  } catch {
    messages = [];
  }
  showAll();
  byId("prompt").addEventListener("input", fit);
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => running?.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
  });
  byId("new").addEventListener("click", () => {
    running?.abort();
    messages = [];
    keep();
    showAll();
    byId("prompt").focus();
  });
  const toggle = (open) => {
    byId("settings").hidden = !open;
    byId("show-settings").setAttribute("aria-expanded", String(open));
  };
  byId("show-settings").addEventListener("click", () => toggle(byId("settings").hidden));
  byId("hide-settings").addEventListener("click", () => toggle(false));
}
