// The server's endpoints, as this page asks them. Paths are relative, so that the page works behind a proxy that adds a prefix.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function failure(response) {
  let message = "";
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not one of this server's own errors: a proxy's, perhaps.
  }
  const wait = response.headers.get("retry-after");
  const later = response.status === 429 && wait ? ` (in ${wait} s)` : "";
  return new ApiError(response.status, (message || `The server answered with status ${response.status}.`) + later);
}

const authorization = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

export async function models(key) {
  const response = await fetch("v1/models", { headers: authorization(key) });
  if (!response.ok) throw await failure(response);
  return (await response.json()).data;
}

// The chunks of a streamed chat. It ends well only behind [DONE]; an answer that breaks off throws.
export async function* chat(request, key, signal) {
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...authorization(key) },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await failure(response);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(0, chunk.error.message);
    yield chunk;
  }
  throw new ApiError(0, "The answer broke off before its end.");
}

// The data of each event of a stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6).trimEnd();
  }
}

// The samples of /metrics: a map from the name with its labels, as written, to the number.
export async function metrics() {
  const response = await fetch("metrics", { cache: "no-store" });
  if (!response.ok) throw await failure(response);
  const samples = new Map();
  for (const line of (await response.text()).split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const at = line.lastIndexOf(" ");
    samples.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return samples;
}
