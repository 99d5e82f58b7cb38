//! One chart over time, drawn by uPlot, with a table of the same numbers.

import uPlot from "uplot";
import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { scheme } from "../ui/theme";

export interface Series {
  label: string;
  values: (number | null)[];
}

export interface ChartProps {
  title: string;
  times: number[];
  series: Series[];
  format: (value: number | undefined) => string;
  /** Areas on top of each other. */
  stacked?: boolean;
  logarithmic?: boolean;
  seconds: number;
  now: number;
}

/** Charts of a view have their cursors at the same time. */
const SYNC = "charts";
const HEIGHT = 190;
const COLOURS = 8;
/** A logarithmic axis has no 0: what takes less than a microsecond is drawn here. */
const FLOOR_US = 1;

/** Lines at powers of ten only. */
function decades(_: uPlot, splits: number[]): (number | null)[] {
  return splits.map((value) => (Number.isInteger(Math.log10(value)) ? value : null));
}

function colour(element: Element, at: number): string {
  return getComputedStyle(element).getPropertyValue(`--series-${(at % COLOURS) + 1}`).trim();
}

/** Each series on top of those before it. A time without any value stays empty; at others, what has
 * none is nothing, because an area needs both of its edges. */
export function stack(series: Series[]): (number | null)[][] {
  const length = series[0]?.values.length ?? 0;
  const some = (at: number) => series.some((one) => (one.values[at] ?? null) !== null);
  const sums: (number | null)[] = Array.from({ length }, (_, at) => (some(at) ? 0 : null));
  return series.map((one) => {
    one.values.forEach((value, at) => {
      const below = sums[at] ?? null;
      sums[at] = value === null ? below : (below ?? 0) + value;
    });
    return [...sums];
  });
}

function drawn(props: ChartProps): (number | null)[][] {
  if (props.stacked) return stack(props.series);
  if (!props.logarithmic) return props.series.map((one) => one.values);
  return props.series.map((one) => one.values.map((value) => (value === null ? null : Math.max(value, FLOOR_US))));
}

function options(element: HTMLElement, props: ChartProps, width: number, at: Signal<number | null>): uPlot.Options {
  const style = getComputedStyle(element);
  const grid = style.getPropertyValue("--line").trim();
  const ink = style.getPropertyValue("--quiet").trim();
  const font = `11px ${style.fontFamily}`;
  const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
  const logarithmic = { filter: decades, grid: { ...axis.grid, filter: decades }, ticks: { ...axis.ticks, filter: decades } };
  const last = props.series.length - 1;
  const range = (): [number, number] => [now(element) - props.seconds, now(element)];
  return {
    width,
    height: HEIGHT,
    padding: [8, 14, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: SYNC }, y: false, points: { size: 6 }, drag: { x: false, y: false } },
    hooks: { setCursor: [(plot) => (at.value = plot.cursor.idx ?? null)] },
    scales: {
      x: { time: true, range },
      y: props.logarithmic ? { distr: 3 } : { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] },
    },
    axes: [
      { ...axis, size: 26, space: 64, values: (_, splits) => splits.map((value) => clock(value, props.seconds)) },
      { ...axis, size: 66, ...(props.logarithmic ? logarithmic : {}), values: (_, splits) => splits.map((value) => (value === null ? "" : props.format(value))) },
    ],
    series: [
      {},
      ...props.series.map((one, index): uPlot.Series => {
        const line = colour(element, index);
        const plain = { label: one.label, stroke: line, width: 1.5, spanGaps: false, points: { show: false } };
        return props.stacked ? { ...plain, fill: `${line}${"b0"}` } : plain;
      }),
    ],
    ...(props.stacked
      ? { bands: Array.from({ length: Math.max(0, last) }, (_, index): uPlot.Band => ({ series: [index + 2, index + 1] })) }
      : {}),
  };
}

function clock(seconds: number, range: number): string {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB").slice(0, range <= 300 ? 8 : 5);
}

function now(element: HTMLElement): number {
  return Number(element.dataset.now);
}

export function Chart(props: ChartProps) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  /** The index of the time under the cursor, of this chart or another one. */
  const at = useSignal<number | null>(null);
  const shape = `${scheme.value}|${props.series.map((one) => one.label).join("|")}|${props.seconds}|${props.stacked}`;
  if (element.current) element.current.dataset.now = String(props.now);
  useEffect(() => {
    const target = element.current;
    if (!target) return undefined;
    target.dataset.now = String(props.now);
    const made = new uPlot(options(target, props, target.clientWidth || 300, at), data(props), target);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(120, target.clientWidth), height: HEIGHT }));
    observer.observe(target);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData(data(props));
  }, [props.times, props.series, props.now, shape]);
  return (
    <figure class="chart" data-test={`chart ${props.title}`}>
      <figcaption>
        {props.title}
        <span class="quiet" data-test="cursor time">
          {at.value !== null && props.times[at.value] !== undefined ? ` at ${clock(props.times[at.value] ?? 0, 0)}` : ""}
        </span>
      </figcaption>
      <div ref={element} class="plot" role="img" aria-label={`${props.title} over time; the numbers are in the table below`} />
      <Numbers {...props} at={at.value} />
    </figure>
  );
}

function data(props: ChartProps): uPlot.AlignedData {
  return [props.times, ...drawn(props)] as uPlot.AlignedData;
}

/** The numbers of the time under the cursor, or the last ones. */
function Numbers({ series, format, title, at: index }: ChartProps & { at: number | null }) {
  const atCursor = index !== null;

  return (
    <table class="numbers">
      <caption class="unseen">{title}: {atCursor ? "at the cursor" : "now"}, mean and highest</caption>
      <thead>
        <tr>
          <th scope="col">
            <span class="unseen">series</span>
          </th>
          <th scope="col">{atCursor ? "cursor" : "now"}</th>
          <th scope="col">mean</th>
          <th scope="col">highest</th>
        </tr>
      </thead>
      <tbody>
        {series.map((one, at) => {
          const values = one.values.filter((value) => value !== null);
          const mean = values.length ? values.reduce((a, b) => a + b, 0) / values.length : undefined;
          const highest = values.length ? values.reduce((a, b) => Math.max(a, b), 0) : undefined;
          return (
            <tr>
              <th scope="row">
                <span class={`swatch series-${(at % COLOURS) + 1}`} aria-hidden="true" />
                {one.label}
              </th>
              <td>{format((index === null ? one.values.at(-1) : one.values[index]) ?? undefined)}</td>
              <td>{format(mean)}</td>
              <td>{format(highest)}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
