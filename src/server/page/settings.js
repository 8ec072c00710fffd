// What is asked of the model besides the conversation. Kept in this browser; the key only as long as the tab.
import { byId, el } from "./dom.js";

const number = (name, label, attributes = {}) => ({ name, label, pair: true, input: { type: "number", step: "any", ...attributes } });
const whole = (name, label, attributes = {}) => number(name, label, { step: 1, ...attributes });
const json = (name, label, placeholder) =>
  ({ name, label, json: true, textarea: { rows: 4, class: "code-field", spellcheck: "false", placeholder } });

const FIELDS = [
  { name: "system", label: "System message", textarea: { rows: 3 } },
  number("temperature", "Temperature", { min: 0, max: 2 }),
  number("top_p", "Top p", { min: 0, max: 1 }),
  whole("top_k", "Top k", { min: -1 }),
  number("min_p", "Min p", { min: 0, max: 1 }),
  whole("max_completion_tokens", "Most tokens", { min: 1 }),
  whole("seed", "Seed"),
  number("presence_penalty", "Presence penalty", { min: -2, max: 2 }),
  number("frequency_penalty", "Frequency penalty", { min: -2, max: 2 }),
  number("repetition_penalty", "Repetition penalty", { min: 0 }),
  whole("thinking_token_budget", "Reasoning tokens", { min: 0 }),
  { name: "reasoning_effort", label: "Reasoning effort", options: ["", "low", "high", "max"] },
  { name: "stop", label: "Stop strings, one a line", textarea: { rows: 2 }, lines: true },
  json("tools", "Tools, as JSON", '[{"type": "function", "function": {"name": ...}}]'),
  json("schema", "Schema of the answer, as JSON", '{"type": "object", "properties": ...}'),
  { name: "key", label: "API key", input: { type: "password", autocomplete: "off" }, secret: true },
];
const KEPT = "baton.settings";

const controls = new Map();

function load() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function keep() {
  const values = {};
  for (const field of FIELDS) {
    const value = controls.get(field.name).value;
    if (field.secret) sessionStorage.setItem("baton.key", value);
    else if (value !== "") values[field.name] = value;
  }
  localStorage.setItem(KEPT, JSON.stringify(values));
}

// Whether a text is JSON, or nothing; the browser shows the message at the field.
function checkJson(control) {
  let problem = "";
  try {
    if (control.value.trim() !== "") JSON.parse(control.value);
  } catch (error) {
    problem = String(error.message);
  }
  control.setCustomValidity(problem);
}

function makeControl(field) {
  if (field.options) return el("select", {}, ...field.options.map((o) => el("option", { value: o }, o || "as the model has it")));
  return field.textarea ? el("textarea", field.textarea) : el("input", field.input);
}

export function show(onKey) {
  const kept = load();
  let pair = null;
  for (const field of FIELDS) {
    const control = makeControl(field);
    control.id = `setting-${field.name}`;
    control.value = (field.secret ? sessionStorage.getItem("baton.key") : kept[field.name]) ?? "";
    if (field.json) checkJson(control);
    control.addEventListener("change", () => {
      if (field.json) checkJson(control);
      control.reportValidity();
      keep();
      if (field.secret) onKey();
    });
    controls.set(field.name, control);
    if (field.pair && pair === null) byId("fields").append((pair = el("div", { class: "pair" })));
    if (!field.pair) pair = null;
    (pair ?? byId("fields")).append(el("label", {}, el("span", {}, field.label), control));
  }
  byId("fields").addEventListener("submit", (event) => event.preventDefault());
  byId("reset-settings").onclick = () => {
    for (const field of FIELDS) if (!field.secret) controls.get(field.name).value = "";
    for (const field of FIELDS) if (field.json) checkJson(controls.get(field.name));
    keep();
  };
}

export const key = () => controls.get("key").value.trim();

// The first field whose value cannot be sent, or null.
export const invalid = () => FIELDS.find((field) => !controls.get(field.name).checkValidity()) ?? null;

export function system() {
  return controls.get("system").value.trim();
}

// The members of a request that were set.
export function request() {
  const out = {};
  for (const field of FIELDS) {
    const text = controls.get(field.name).value;
    if (text.trim() === "" || field.secret || field.name === "system") continue;
    if (field.name === "schema") out.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(text) } };
    else if (field.json) out[field.name] = JSON.parse(text);
    else if (field.lines) out[field.name] = text.split("\n").filter((line) => line !== "");
    else if (field.input) out[field.name] = Number(text);
    else out[field.name] = text;
  }
  return out;
}
