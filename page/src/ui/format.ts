//! Numbers and times as text.

const DECIMAL = ["", "k", "M", "G", "T", "P", "E"];
/** Those that `parseBytes` knows. */
const PARSED = DECIMAL.slice(0, 6);

function scaled(value: number, unit: string, digits: number): string {
  if (!Number.isFinite(value)) return "–";
  let power = 0;
  let rest = Math.abs(value);
  while (rest >= 999.5 && power < DECIMAL.length - 1) {
    rest /= 1000;
    power++;
  }
  const places = rest >= 100 || (power === 0 && Number.isInteger(rest)) ? 0 : rest >= 10 ? Math.min(1, digits) : digits;
  const text = (value < 0 ? -rest : rest).toFixed(places);
  return `${text}${unit || DECIMAL[power] ? " " : ""}${DECIMAL[power]}${unit}`;
}

/** `100 GB`: decimal, as capacities of drives are. */
export function bytes(value: number | undefined): string {
  return value === undefined ? "–" : scaled(value, "B", 2);
}

export function rate(value: number | undefined): string {
  return value === undefined ? "–" : scaled(value, "B/s", 2);
}

export function count(value: number | undefined): string {
  return value === undefined ? "–" : scaled(value, "", 2).trim();
}

/** A latency in microseconds. */
export function latency(us: number | undefined | null): string {
  if (us === undefined || us === null) return "–";
  if (us < 1000) return `${us < 10 ? us.toFixed(1) : Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 2 : us < 1e5 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(2)} s`;
}

export function exact(value: number | undefined): string {
  return value === undefined ? "–" : value.toLocaleString("en");
}

export function time(text: string | number | undefined): string {
  if (text === undefined || text === "") return "–";
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return String(text);
  const today = new Date().toDateString() === date.toDateString();
  const clock = date.toLocaleTimeString("en-GB");
  return today ? clock : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

export function day(text: string | undefined): string {
  return text ? text.slice(0, 10) : "–";
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** `100G`, `2.5 TB`, `4096`: bytes, decimal; KiB, MiB, ... binary. `undefined` if it is none. */
export function parseBytes(text: string): number | undefined {
  const match = text.trim().match(/^(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?$/i);
  if (!match) return undefined;
  const power = " kmgtp".indexOf((match[2] ?? "").toLowerCase() || " ");
  const value = Number(match[1]) * (match[3] ? 1024 : 1000) ** power;
  return Number.isSafeInteger(Math.round(value)) ? Math.round(value) : undefined;
}

/** `50k`: a number with a decimal suffix. */
export function parseCount(text: string): number | undefined {
  return /i/i.test(text) ? undefined : parseBytes(text.replace(/b$/i, ""));
}

/** `50k`, `1G`, `12345`: exactly the number, as it is understood by `parseCount`. */
export function short(value: number): string {
  const power = PARSED.findLastIndex((_, at) => value >= 1000 ** at && value % 1000 ** at === 0);
  return power > 0 ? `${value / 1000 ** power}${DECIMAL[power]}` : String(value);
}

/** The end of an NQN, which tells hosts apart. */
export function shortNqn(nqn: string): string {
  const uuid = nqn.match(/:uuid:([0-9a-f-]+)$/i);
  if (uuid?.[1]) return `${uuid[1].slice(0, 4)}..${uuid[1].slice(-4)}`;
  return nqn.slice(nqn.indexOf(":") + 1) || nqn;
}

/** A name as people read it: that of a plain subsystem, and of what is in it, begins with an NQN. */
export function readable(name: string): string {
  return name.startsWith("nqn.") ? shortNqn(name) : name;
}

/** The last part of it, where there is little room. */
export function shortest(name: string): string {
  return name.startsWith("nqn.") ? (shortNqn(name).split(":").at(-1) ?? name) : name;
}

export function plural(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}
