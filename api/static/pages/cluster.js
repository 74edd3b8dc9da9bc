// The cluster: servers, members and how many the load asks for, who owns which bucket and what moved
// of late, what is not done yet.

import { get, readiness, repeat } from "/static/api.js";
import { badge, facts, fill, h, renew, table } from "/static/dom.js";
import { bytes, clock, duration, number, percent, rate } from "/static/format.js";

const LOOK_MS = 3_000;
const SILENT_MS = 5_000; // reports come every second

const MEMBERS = [
  { title: "member" },
  { title: "role" },
  { title: "reported" },
  { title: "rows", number: true },
  { title: "CPU, of a core", number: true },
  { title: "memory", number: true },
  { title: "up for", number: true },
  { title: "does" },
  { title: "missing" },
];
const WANTED = [
  { title: "role" },
  { title: "there", number: true },
  { title: "wanted", number: true },
  { title: "because" },
];
const MOVES = [
  { title: "when (UTC)" },
  { title: "bucket", number: true },
  { title: "from" },
  { title: "to" },
  { title: "because" },
];
const NOBODY_SAYS = "There is no leader at the moment.";

export async function showCluster(root, { signal, freshness }) {
  const servers = h("div", { class: "tiles" });
  const about = h("div");
  const members = h("div");
  const wanted = h("div");
  const buckets = h("div");
  const moves = h("div");
  const backlog = h("div");
  fill(
    root,
    h("h1", {}, "Cluster"),
    servers,
    about,
    h("h2", {}, "Members"),
    members,
    h("h2", {}, "Members that the load asks for"),
    wanted,
    h("h2", {}, "Buckets and their owners"),
    buckets,
    h("h2", {}, "Latest moves of buckets"),
    moves,
    h("h2", {}, "Backlog by task"),
    backlog,
  );
  const look = async () => {
    const cluster = await get("/v1/cluster", signal);
    const services = await readiness(signal);
    renew(
      servers,
      Object.entries(services).map(([name, said]) => server(name, said)),
    );
    renew(about, aboutCluster(cluster));
    renew(members, membersOf(cluster));
    renew(wanted, wantedOf(cluster.balance));
    renew(buckets, owners(cluster));
    renew(moves, movesOf(cluster.balance));
    renew(backlog, tasks(cluster.backlog.tasks));
  };
  await repeat(LOOK_MS, signal, look, freshness.of("the cluster"));
}

function server(name, said) {
  return h(
    "div",
    { class: "tile", "data-key": name },
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
    ["Spread by", spreadBy(cluster.balance)],
    ["Lag", `${number(cluster.backlog.lag)} messages`],
    ["In Redis", bytes(cluster.backlog.log_bytes)],
    ["Missing", cluster.missing.join(", ") || "nothing"],
  ]);
}

function spreadBy(balance) {
  if (!balance?.strategy) return null;
  return [balance.strategy, balance.strategy_reason].filter(Boolean).join(": ");
}

function membersOf(cluster) {
  const { members, leader } = cluster;
  return table(
    "Members",
    MEMBERS,
    members.map((one) => member(one, leader?.member)),
    {
      keys: members.map((one) => one.id),
      empty: "No process reports: is `mars up` running?",
    },
  );
}

function member(one, leader) {
  const age = one.reported === null ? null : Math.max(0, Date.now() - one.reported);
  const silent = age !== null && age > SILENT_MS;
  return [
    h("span", {}, one.id, one.id === leader ? [" ", badge("leader")] : null),
    one.role,
    h("span", { class: silent ? "wrong" : null }, age === null ? "–" : `${duration(age)} ago`),
    rate(one.load.rows_per_second),
    percent(one.load.cpu_use),
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

function wantedOf(balance) {
  if (!balance) return h("p", { class: "quiet" }, NOBODY_SAYS);
  return table(
    "Members that the load asks for",
    WANTED,
    balance.wanted.map((one) => [
      `${one.role}s`,
      number(one.present),
      h("span", { class: one.wanted > one.present ? "wrong" : null }, number(one.wanted)),
      one.reason,
    ]),
    { keys: balance.wanted.map((one) => one.role), empty: "The leader has not decided yet." },
  );
}

function owners(cluster) {
  const owned = new Map(
    cluster.members.flatMap((one) =>
      one.buckets.map((bucket) => [`${one.id}/${bucket.bucket}/${bucket.epoch}`, bucket]),
    ),
  );
  if (!cluster.assignment.length)
    return h("p", { class: "quiet" }, "No leader has given buckets to reducers yet.");
  return h(
    "ul",
    { class: "buckets" },
    cluster.assignment.map((owner) => {
      const bucket = owned.get(`${owner.member}/${owner.bucket}/${owner.epoch}`);
      const state = bucket?.state ?? "no owner";
      return h(
        "li",
        { data: { state }, "data-key": owner.bucket },
        h("strong", {}, owner.bucket),
        " ",
        owner.member,
        h("small", {}, `${state}, epoch ${owner.epoch}`),
        bucket ? h("small", {}, loadOf(bucket.load)) : null,
      );
    }),
  );
}

function loadOf(load) {
  if (load === null) return "next to no load";
  const waiting = load.backlog_bytes ? `, ${bytes(load.backlog_bytes)} to read` : "";
  return `${percent(load.use)} of a core, ${rate(load.rows_per_second)}${waiting}`;
}

function movesOf(balance) {
  if (!balance) return h("p", { class: "quiet" }, NOBODY_SAYS);
  const newest = [...balance.moves].reverse();
  return table(
    "Latest moves of buckets",
    MOVES,
    newest.map((one) => [
      clock(one.at),
      one.bucket,
      one.source ?? "nobody",
      one.target,
      one.reason,
    ]),
    {
      keys: newest.map((one) => `${one.at}/${one.bucket}`),
      empty: "No bucket has moved since this leader took over.",
    },
  );
}

function tasks(backlog) {
  const columns = [
    { title: "task" },
    { title: "lag", number: true },
    { title: "in Redis", number: true },
  ];
  const sorted = [...backlog].sort(
    (one, other) => other.lag - one.lag || other.log_bytes - one.log_bytes,
  );
  const rows = sorted.map((one) => [
    h("a", { href: `#/tasks/${encodeURIComponent(one.task)}` }, one.task),
    number(one.lag),
    bytes(one.log_bytes),
  ]);
  return table("Backlog by task", columns, rows, {
    keys: sorted.map((one) => one.task),
    empty: "No task is registered yet.",
  });
}
