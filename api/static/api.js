// The REST API: JSON calls, and server-sent events read from the body of a response. (EventSource
// sends no body and no headers, and hides why it was refused.) Where the API asks for a key, so does
// the page.

import { askForKey, currentKey, headersOf, isDeclined } from "/static/access.js";

const NO_KEY = "This API asks for a key: enter one with the button in the bar.";
const NO_ANSWER = "The API does not answer: is `mars up` running?";

/** What the API refused: a problem document. `line` and `column` for a wrong query. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? `The API answered ${status}.`);
    this.status = status;
    this.line = document.line ?? null;
    this.column = document.column ?? null;
    this.errors = document.errors ?? [];
  }
}

/** `body`: what is to be sent as JSON, or JSON. */
async function send(method, path, { body, headers = {}, signal } = {}) {
  const request = { method, headers: { ...headers }, signal, cache: "no-store" };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  for (;;) {
    if (isDeclined()) throw new Problem(401, { detail: NO_KEY }); // each refusal is logged there
    const key = currentKey();
    const response = await answered(path, request, key);
    if (response.ok) return response;
    const problem = new Problem(response.status, await response.json().catch(() => ({})));
    if (problem.status !== 401) throw problem;
    const renewed = currentKey() !== key; // another request has asked meanwhile
    if (!renewed && !(await askForKey(key && problem.message)))
      throw new Problem(401, { detail: NO_KEY });
  }
}

async function answered(path, request, key) {
  return heard(fetch(path, { ...request, headers: { ...request.headers, ...headersOf(key) } }));
}

/** What comes over the network; a problem where nothing does. */
async function heard(coming) {
  try {
    return await coming;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: NO_ANSWER });
  }
}

/** One call; resolves to the JSON of the answer, null where there is none. */
export async function call(method, path, options) {
  const response = await send(method, path, options);
  return response.status === 204 ? null : heard(response.json());
}

/** Each server the API needs: "ok", or what is missing. */
export async function readiness(signal) {
  const response = await heard(fetch("/readyz", { signal, cache: "no-store" })); // 503: an answer
  return (await heard(response.json())).services;
}

export const get = (path, signal) => call("GET", path, { signal });

/** The path of a task, or of something below it. */
export const taskPath = (name, below = "") => `/v1/tasks/${encodeURIComponent(name)}${below}`;

/** The events of one response: `{name, id, data}`, `data` as text. */
export async function* events(path, { method = "GET", headers = {}, ...options } = {}) {
  const response = await send(method, path, {
    ...options,
    headers: { Accept: "text/event-stream", ...headers },
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await heard(reader.read());
      if (done) return;
      const pieces = (rest + value).split("\n\n");
      rest = pieces.pop();
      for (const piece of pieces) {
        const event = parsed(piece);
        if (event.data !== null) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(piece) {
  const event = { name: "message", id: null, data: null };
  for (const line of piece.split("\n")) {
    const [name, ...value] = line.split(": ");
    if (name === "event") event.name = value.join(": ");
    else if (name === "id") event.id = value.join(": ");
    else if (name === "data") event.data = value.join(": ");
  }
  return event;
}

const FINAL = new Set([401, 403, 404]); // no key, no right, no such thing: that will not pass
const AGAIN_MS = 2_000;
const AGAIN_MS_MAX = 30_000;

/**
 * Follow a stream until `signal` ends it, connecting again after it was cut off, and later each
 * time that fails. A page that is not looked at gives its connection back: a browser has six to one
 * server, for all its pages. `tell` hears of each problem, and null once it is over.
 */
export async function follow(path, signal, take, tell) {
  let again = AGAIN_MS;
  while (!signal.aborted) {
    const hidden = new AbortController();
    const look = () => document.hidden && hidden.abort();
    document.addEventListener("visibilitychange", look);
    try {
      const both = AbortSignal.any([signal, hidden.signal]);
      if (document.hidden) again = AGAIN_MS;
      else
        for await (const event of events(path, { signal: both })) {
          again = AGAIN_MS;
          tell(null);
          given(event, take);
        }
    } catch (error) {
      if (signal.aborted || FINAL.has(error.status)) return;
      if (!hidden.signal.aborted) tell(error);
    } finally {
      document.removeEventListener("visibilitychange", look);
    }
    await pause(again, signal);
    again = Math.min(2 * again, AGAIN_MS_MAX);
  }
}

/** Hand an event on; what fails there is no fault of the connection. */
function given(event, take) {
  try {
    take(JSON.parse(event.data));
  } catch (error) {
    reportError(error);
  }
}

/**
 * Call `look` now and every `ms` while the page is visible, until `signal` ends it. What does not
 * answer is asked again, and `tell` hears of it, and null once it is over; what will not pass must
 * be told by who called.
 */
export async function repeat(ms, signal, look, tell) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await look();
        tell(null);
      } catch (error) {
        if (signal.aborted) return;
        const passing = error instanceof Problem && !FINAL.has(error.status);
        if (!passing) throw error;
        tell(error);
      }
    }
    await pause(ms, signal);
  }
}

/** Wait, or until `signal` ends. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done, { once: true });
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
  });
}
