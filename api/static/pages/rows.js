import { table } from "/static/dom.js";
import { value } from "/static/format.js";

/** Result rows as a table, without the bounds of their window. */
export function rowsTable(rows, caption) {
  const names = rows.length
    ? Object.keys(rows[0]).filter((name) => !["window_start", "window_end"].includes(name))
    : [];
  const columns = names.map((name) => ({
    title: name,
    number: rows.some((one) => typeof one[name] === "number"),
  }));
  return table(
    caption,
    columns,
    rows.map((one) => names.map((name) => value(one[name]))),
    { empty: "No rows." },
  );
}
