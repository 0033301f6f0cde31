// Numbers, times and ids as people read them.

export function parseTime(text) {
  if (!text) return null;
  // The API sends UTC, without a zone.
  const time = new Date(/(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`);
  return Number.isNaN(time.getTime()) ? null : time;
}

const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** Write a number of seconds: "12 ms", "0.42 s", "3 h 12 min". */
export function duration(seconds) {
  if (seconds < 0.0995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  return inUnits(seconds);
}

/** Write seconds with at most two units. */
function inUnits(seconds) {
  let rest = Math.round(seconds);
  const parts = [];
  for (const [name, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count || parts.length) parts.push([count, name]);
    rest -= count * size;
    if (parts.length === 2) break;
  }
  return parts
    .filter(([count]) => count)
    .map(([count, name]) => `${count} ${name}`)
    .join(" ");
}

export function age(time, now = new Date()) {
  const seconds = (now - time) / 1000;
  return seconds < 2 ? "now" : inUnits(Math.floor(seconds));
}

export function clock(time) {
  return time
    .toISOString()
    .replace("T", " ")
    .replace(/\.(\d{3})Z$/, ".$1");
}

export function gib(value) {
  if (typeof value !== "number") return String(value ?? "unknown");
  return value >= 10240
    ? `${(value / 1024).toFixed(1)} TiB`
    : `${Math.round(value * 10) / 10} GiB`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

export const isId = (text) => /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(text);
