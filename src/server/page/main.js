// Which view is shown, what is served, and whether the server answers.
import * as api from "./api.js";
import * as chat from "./chat.js";
import { byId } from "./dom.js";
import * as metrics from "./metrics.js";
import * as settings from "./settings.js";

function showView() {
  const view = location.hash === "#metrics" ? "metrics" : "chat";
  for (const id of ["chat", "metrics"]) byId(id).hidden = id !== view;
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  metrics.draw();
  if (view === "chat") byId("prompt").focus({ preventScroll: true });
}

async function showModel() {
  try {
    const [model] = await api.models(settings.key());
    byId("model").textContent = model.id;
    document.title = `${model.id} · Baton`;
  } catch (error) {
    byId("model").textContent = error.status === 401 ? "this server asks for a key: see the settings" : "";
  }
}

function showState(good, text) {
  byId("state").className = good ? "good" : "bad";
  byId("state").title = text;
  byId("state").setAttribute("aria-label", text);
}

settings.show(showModel);
chat.start();
metrics.start(showState);
addEventListener("hashchange", showView);
showView();
showModel();
