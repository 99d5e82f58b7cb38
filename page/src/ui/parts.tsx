//! Small elements that views share: health, badges, tables, fields, the call of an action.

import { useSignal } from "@preact/signals";
import type { ButtonHTMLAttributes, ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { type Method, curl } from "../api/calls";
import { ServiceError } from "../api/client";
import { time } from "./format";
import { announce } from "./live";

const GLYPHS: Record<string, string> = { OK: "●", Warning: "▲", Critical: "■" };

/** Health by form and word, not by colour alone. */
export function Health({ value, quiet }: { value: string | undefined | null; quiet?: boolean }) {
  const health = value || "Unknown";
  return (
    <span class={`health ${health.toLowerCase()}`}>
      <span aria-hidden="true">{GLYPHS[health] ?? "○"}</span>
      <span class={quiet ? "unseen" : ""}>{health}</span>
    </span>
  );
}

export function Badge({ children, tone }: { children: ComponentChildren; tone?: "good" | "warn" | "bad" }) {
  return <span class={`badge ${tone ?? ""}`}>{children}</span>;
}

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Numbers are at the right. */
  number?: boolean;
  /** Narrow screens do without. */
  extra?: boolean;
  /** What is in the cells says enough to who sees them. */
  bare?: boolean;
  /** What rows are sorted by; without it by what is in the cell, if that is text or a number. */
  by?: (row: T) => string | number | undefined;
}

/** Longer tables can be searched. */
const SEARCHED_FROM = 12;
/** So many rows are shown at once. */
const ROWS_SHOWN = 25;

export interface TableProps<T> {
  caption: string;
  /** The view has a search of its own. */
  searched?: boolean;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  empty: ComponentChildren;
}

/** What a row is sorted by in a column; `undefined` if it has nothing there. */
function sortKey<T>(column: Column<T>, row: T): string | number | undefined {
  const value = column.by ? column.by(row) : column.cell(row);
  return typeof value === "string" || typeof value === "number" ? value : undefined;
}

/** Numbers by value, text by its words and numbers; what has nothing comes last, either way. */
export function sorted<T>(rows: T[], column: Column<T>, down: boolean): T[] {
  const compare = (a: T, b: T) => {
    const [left, right] = [sortKey(column, a), sortKey(column, b)];
    if (left === undefined || right === undefined) return Number(left === undefined) - Number(right === undefined);
    const order =
      typeof left === "number" && typeof right === "number"
        ? left - right
        : String(left).localeCompare(String(right), "en", { numeric: true });
    return down ? -order : order;
  };
  return rows.toSorted(compare);
}

/** Whether a row has all of the words in what it is sorted by. */
function has<T>(columns: Column<T>[], row: T, name: string, words: string[]): boolean {
  const text = [name, ...columns.map((column) => sortKey(column, row))].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

export function Table<T>({ caption, columns, rows: all, id, empty, searched }: TableProps<T>) {
  const words = useSignal("");
  const wholly = useSignal(false);
  const order = useSignal<{ title: string; down: boolean } | null>(null);
  if (!all.length) return <p class="empty">{empty}</p>;
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const given = wanted.length ? all.filter((row) => has(columns, row, id(row), wanted)) : all;
  const by = columns.find((column) => column.title === order.value?.title);
  const found = by ? sorted(given, by, order.value?.down ?? false) : given;
  const rows = wholly.value ? found : found.slice(0, ROWS_SHOWN);
  const sortable = (column: Column<T>) => !column.bare && all.some((row) => sortKey(column, row) !== undefined);
  // Up, down, and as it was.
  const turn = (title: string) => {
    const now = order.value?.title === title ? order.value : null;
    order.value = !now ? { title, down: false } : now.down ? null : { title, down: true };
  };
  const direction = (column: Column<T>) => (column !== by ? undefined : order.value?.down ? "descending" : "ascending");
  const style = ({ number, extra, bare }: Column<T>) => [number && "number", extra && "extra", bare && "bare"].filter(Boolean).join(" ");
  const table = (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" class={style(column)} aria-sort={direction(column)}>
                {column.bare ? (
                  <span class="unseen">{column.title}</span>
                ) : sortable(column) ? (
                  <button type="button" class="sort" onClick={() => turn(column.title)}>
                    {column.title}
                    <span aria-hidden="true">{{ ascending: " ▲", descending: " ▼", none: "" }[direction(column) ?? "none"]}</span>
                  </button>
                ) : (
                  column.title
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)} data-row={id(row)}>
              {columns.map((column, at) =>
                at === 0 ? (
                  <th scope="row" class={style(column)}>
                    {column.cell(row)}
                  </th>
                ) : (
                  <td class={style(column)}>{column.cell(row)}</td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
  return (
    <div class="table">
      {!searched && all.length > SEARCHED_FROM && (
        <div class="search">
          <input
            type="search"
            placeholder="filter"
            aria-label={`Filter of ${caption}`}
            value={words.value}
            onInput={(event) => (words.value = event.currentTarget.value)}
          />
          <span class="quiet" role="status">
            {wanted.length ? `${found.length} of ${all.length}` : all.length}
          </span>
        </div>
      )}
      {table}
      {found.length > ROWS_SHOWN && (
        <p class="more">
          <Button class="small" onClick={() => (wholly.value = !wholly.value)}>
            {wholly.value ? `Show ${ROWS_SHOWN}` : `Show all ${found.length}`}
            <span class="unseen"> of {caption}</span>
          </Button>
        </p>
      )}
    </div>
  );
}

export interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: string;
  type?: "text" | "password";
  autocomplete?: string;
  required?: boolean;
  invalid?: boolean;
  name?: string;
}

export function Field(props: FieldProps) {
  const id = useId();
  const common = {
    id,
    name: props.name,
    value: props.value,
    required: props.required,
    autocomplete: (props.autocomplete ?? "off") as "off",
    spellcheck: false,
    "aria-invalid": props.invalid ? ("true" as const) : undefined,
    "aria-describedby": props.hint ? `${id}-hint` : undefined,
    onInput: (event: { currentTarget: HTMLInputElement }) => props.onInput(event.currentTarget.value),
  };
  return (
    <p class="field">
      <label for={id}>{props.label}</label>
      {props.type === "password" ? <input type="password" {...common} /> : <input type="text" {...common} />}
      {props.hint && (
        <small id={`${id}-hint`} class={props.invalid ? "bad" : ""}>
          {props.hint}
        </small>
      )}
    </p>
  );
}

export function Select(props: {
  label: string;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
  name?: string;
}) {
  const id = useId();
  return (
    <p class="field">
      <label for={id}>{props.label}</label>
      <select id={id} name={props.name} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(([value, label]) => (
          <option value={value}>{label}</option>
        ))}
      </select>
    </p>
  );
}

/** One of several, and what is done with it. */
export function Choose(props: {
  label: string;
  name: string;
  options: [string, string][];
  action: string;
  onChoose: (value: string) => void;
}) {
  const value = useSignal("");
  const chosen = props.options.some(([key]) => key === value.value) ? value.value : (props.options[0]?.[0] ?? "");
  if (!props.options.length) return null;
  return (
    <form
      class="choose"
      onSubmit={(event) => {
        event.preventDefault();
        props.onChoose(chosen);
      }}
    >
      <Select label={props.label} name={props.name} value={chosen} options={props.options} onChange={(text) => (value.value = text)} />
      <Button type="submit">{props.action}</Button>
    </form>
  );
}

export interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "type" | "disabled"> {
  busy?: boolean;
  disabled?: boolean;
  type?: "submit" | "button";
  "data-test"?: string;
}

export function Button(props: ButtonProps) {
  const { busy, children, type, ...rest } = props;
  return (
    <button {...rest} type={type ?? "button"} disabled={props.disabled || busy} aria-busy={busy ? "true" : undefined}>
      {children}
    </button>
  );
}

/** A request as a command that can be copied. */
export function CallText({ call }: { call: { method: Method; uri: string; body?: unknown; ifMatch?: string | undefined } }) {
  const copied = useSignal(false);
  const text = curl(call);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      copied.value = true;
      announce("Copied.");
      setTimeout(() => (copied.value = false), 2000);
    } catch {
      announce("The browser does not allow copying; select the text.");
    }
  };
  return (
    <div class="call">
      <code tabIndex={0} role="textbox" aria-readonly="true" aria-label="the request as a command">
        {text}
      </code>
      <Button class="small" onClick={() => void copy()}>
        {copied.value ? "copied" : "copy"}
      </Button>
    </div>
  );
}

/** Why something was not done, in the service's words. */
export function Failure({ error }: { error: unknown }) {
  if (!error) return null;
  const service = error instanceof ServiceError ? error : undefined;
  const messages = service?.messages.length ? service.messages : [{ Message: textOf(error) }];
  return (
    <div class="failure" role="alert">
      {messages.map((message) => (
        <p>
          {message.Message}
          {"Resolution" in message && message.Resolution ? <span class="advice"> {message.Resolution}</span> : null}
        </p>
      ))}
    </div>
  );
}

export function textOf(error: unknown): string {
  if (error instanceof ServiceError) return `${error.message} ${error.advice}`.trim();
  return error instanceof Error ? error.message : String(error);
}

/** A moment, which does not break into lines. */
export function Time({ at }: { at: string | undefined }) {
  return <time dateTime={at}>{time(at)}</time>;
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value ?? "–"}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A filled bar with its number as text. */
export function Meter({ value, label, tone }: { value: number; label: string; tone?: string }) {
  const percent = Math.max(0, Math.min(100, value));
  return (
    <span class={`meter ${tone ?? ""}`}>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect width="100" height="8" class="meter-back" />
        <rect width={percent} height="8" class="meter-fill" />
      </svg>
      <span>{label}</span>
    </span>
  );
}
