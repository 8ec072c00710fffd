// The fleet as a table, read once a second. What instances say of themselves becomes text, never markup.
const columns = [
  ["instance", (i) => i.url],
  ["role", (i) => i.role],
  ["health", (i) => (i.why ? `${i.health}: ${i.why}` : i.leaving ? "leaving" : i.health)],
  ["breaker", (i) => i.breaker],
  ["open", (i) => i.open],
  ["runs", (i) => i.running],
  ["waits", (i) => i.waiting],
  ["cache hits", (i) => (i.cached ? `${Math.round(100 * i.cached)} %` : "")],
  ["hand-over", (i) => (i.hand_over_ms ? `${i.hand_over_ms.toFixed(1)} ms` : "")],
  ["sent", (i) => i.sent],
  ["served", (i) => i.served],
  ["failed", (i) => i.failed],
  ["turned away", (i) => i.turned_away],
  ["blocks cached", (i) => (i.blocks ? `${Math.round((100 * i.blocks_matched) / i.blocks)} %` : "")],
];

function row(cells, kind) {
  return cells.map((text) => {
    const cell = document.createElement(kind);
    cell.textContent = text;
    return cell;
  });
}

async function show() {
  const summary = document.getElementById("summary");
  try {
    const fleet = await (await fetch("server_info", { cache: "no-store" })).json();
    const answering = fleet.instances.filter((i) => i.role !== "prefill").length;
    summary.textContent = `${fleet.ready} of ${answering} ready to answer, ${fleet.requests_open} open, ${fleet.retries} retried, ` +
      `${fleet.streams_broken} broken off${fleet.draining ? ", ending" : ""}`;
    document.getElementById("instances").replaceChildren(...fleet.instances.map((instance) => {
      const line = document.createElement("tr");
      line.append(...row(columns.map(([, value]) => value(instance)), "td"));
      line.children[2].className = instance.health;
      return line;
    }));
  } catch {
    summary.textContent = "the router does not answer";
  }
}

document.getElementById("columns").append(...row(columns.map(([name]) => name), "th"));
show();
setInterval(show, 1000);
