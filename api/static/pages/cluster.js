// The cluster: servers, members, who owns which bucket, what is not done yet.

import { get, readiness, repeat } from "/static/api.js";
import { badge, facts, fill, h, table } from "/static/dom.js";
import { bytes, duration, number, rate } from "/static/format.js";

const LOOK_MS = 3_000;
const SILENT_MS = 5_000; // reports come every second

const MEMBERS = [
  { title: "member" },
  { title: "role" },
  { title: "reported" },
  { title: "rows", number: true },
  { title: "memory", number: true },
  { title: "up for", number: true },
  { title: "does" },
  { title: "missing" },
];

export async function showCluster(root, { signal }) {
  const servers = h("div", { class: "tiles" });
  const about = h("div");
  const members = h("div");
  const buckets = h("div");
  const backlog = h("div");
  fill(
    root,
    h("h1", {}, "Cluster"),
    servers,
    about,
    h("h2", {}, "Members"),
    members,
    h("h2", {}, "Buckets and their owners"),
    buckets,
    h("h2", {}, "Backlog by task"),
    backlog,
  );
  await repeat(LOOK_MS, signal, async () => {
    const cluster = await get("/v1/cluster", signal);
    const services = await readiness(signal);
    fill(
      servers,
      Object.entries(services).map(([name, said]) => server(name, said)),
    );
    fill(about, aboutCluster(cluster));
    fill(
      members,
      table(
        "Members",
        MEMBERS,
        cluster.members.map((one) => member(one, cluster.leader?.member)),
        { empty: "No process reports: is `mars up` running?" },
      ),
    );
    fill(buckets, owners(cluster));
    fill(backlog, tasks(cluster.backlog.tasks));
  });
}

function server(name, said) {
  return h(
    "div",
    { class: "tile" },
    h("strong", {}, name),
    badge(said === "ok" ? "ok" : "away"),
    said === "ok" ? null : h("p", {}, said),
  );
}

function aboutCluster(cluster) {
  const leader = cluster.leader;
  return facts([
    ["Namespace", cluster.namespace],
    ["Version", cluster.version],
    [
      "Leader",
      leader ? `${leader.member ?? "none at the moment"} (epoch ${leader.epoch})` : "none yet",
    ],
    ["Store epoch", cluster.store_epoch],
    ["Buckets", cluster.buckets],
    ["Lag", `${number(cluster.backlog.lag)} messages`],
    ["In Redis", bytes(cluster.backlog.log_bytes)],
    ["Missing", cluster.missing.join(", ") || "nothing"],
  ]);
}

function member(one, leader) {
  const age = one.reported === null ? null : Math.max(0, Date.now() - one.reported);
  const silent = age !== null && age > SILENT_MS;
  return [
    h("span", {}, one.id, one.id === leader ? [" ", badge("leader")] : null),
    one.role,
    h("span", { class: silent ? "wrong" : null }, age === null ? "–" : `${duration(age)} ago`),
    rate(one.load.rows_per_second),
    bytes(one.load.resident_bytes),
    duration(Math.max(0, Date.now() - one.started)),
    does(one),
    one.missing.join(", ") || "nothing",
  ];
}

function does(one) {
  const parts = [];
  if (one.partitions.length) {
    const odd = one.partitions.filter((part) => !["reading", "idle"].includes(part.state));
    parts.push(`reads ${one.partitions.length} partitions`);
    if (odd.length)
      parts.push(odd.map((part) => `${part.topic}/${part.partition} ${part.state}`).join(", "));
  }
  if (one.buckets.length) parts.push(`owns ${one.buckets.length} buckets`);
  return parts.join("; ") || "–";
}

function owners(cluster) {
  const states = new Map(
    cluster.members.flatMap((one) =>
      one.buckets.map((bucket) => [`${one.id}/${bucket.bucket}/${bucket.epoch}`, bucket.state]),
    ),
  );
  if (!cluster.assignment.length)
    return h("p", { class: "quiet" }, "No leader has given buckets to reducers yet.");
  return h(
    "ul",
    { class: "buckets" },
    cluster.assignment.map((owner) => {
      const state = states.get(`${owner.member}/${owner.bucket}/${owner.epoch}`) ?? "no owner";
      return h(
        "li",
        { data: { state } },
        h("strong", {}, owner.bucket),
        " ",
        owner.member,
        h("br"),
        h("small", {}, `${state}, epoch ${owner.epoch}`),
      );
    }),
  );
}

function tasks(backlog) {
  const columns = [
    { title: "task" },
    { title: "lag", number: true },
    { title: "in Redis", number: true },
  ];
  const rows = [...backlog]
    .sort((one, other) => other.lag - one.lag || other.log_bytes - one.log_bytes)
    .map((one) => [
      h("a", { href: `#/tasks/${encodeURIComponent(one.task)}` }, one.task),
      number(one.lag),
      bytes(one.log_bytes),
    ]);
  return table("Backlog by task", columns, rows, { empty: "No task is registered yet." });
}
