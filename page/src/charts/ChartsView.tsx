//! The charts of a function, port, drive or host: rates, bandwidth, latencies, and shares of a drive.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { serviceNow } from "../api/client";
import { MANAGER } from "../api/addresses";
import { box } from "../model/store";
import { type Kind, RANGES, type Range, bytes, current, iops } from "../model/metrics";
import { go, route } from "../router";
import { count, latency, rate, readable } from "../ui/format";
import { Segments } from "../ui/Segments";
import { Chart, type Series } from "./Chart";
import { type Shown, type Source, aligned, follow } from "./data";
import { watchKinds } from "./live";

const KINDS: Kind[] = ["Target", "Drives", "Functions", "Namespaces", "Ports", "Hosts"];
const SINGULAR: Record<Kind, string> = {
  Functions: "Function",
  Namespaces: "Namespace",
  Ports: "Port",
  Drives: "Drive",
  Hosts: "Host",
  Target: "Target",
};

/** The end of a URI: how histories name their objects. */
function idOf(uri: string): string {
  return uri.split("/").at(-1) ?? "";
}

function choices(kind: Kind): Source[] {
  const { drives, ports, hosts } = box.value;
  switch (kind) {
    case "Functions":
      return drives.flatMap((drive) =>
        drive.functions.map((one) => ({ label: one.name, kind, id: `${idOf(drive.storage)}-${idOf(one.uri)}`, uri: one.uri })),
      );
    case "Target":
      return [{ label: "all of it", kind, id: "ebof", uri: MANAGER }];
    case "Namespaces":
      return drives.flatMap((drive) =>
        drive.namespaces.map((one) => ({ label: one.name, kind, id: `${idOf(drive.storage)}-${idOf(one.uri)}`, uri: one.uri })),
      );
    case "Ports":
      return ports.map((port) => ({ label: port.name, kind, id: port.id, uri: port.uri }));
    case "Drives":
      return drives
        .filter((drive) => drive.uri)
        .map((drive) => ({ label: drive.name, kind, id: idOf(drive.uri ?? ""), uri: drive.uri ?? "" }));
    default:
      return hosts
        .filter((host) => host.uri)
        .map((host) => ({ label: host.nqn, kind, id: idOf(host.uri ?? "").replace(/^host-/, ""), uri: host.uri ?? "" }));
  }
}

/** What has most to do now; `undefined` if nothing has. */
function busiest(sources: Source[]): Source | undefined {
  const load = (source: Source) => iops(current.value.get(source.uri)) * 4096 + bytes(current.value.get(source.uri));
  const best = sources.reduce<Source | undefined>((a, b) => (a && load(a) >= load(b) ? a : b), undefined);
  return best && load(best) > 0 ? best : undefined;
}

export function ChartsView() {
  const [, kindName, name] = route.value;
  const kind = KINDS.find((one) => one === kindName) ?? "Target";
  const all = choices(kind);
  // What was busy when the view was opened stays, also when something else is busier later.
  const first = useSignal<{ kind: Kind; label: string } | null>(null);
  const known = first.value?.kind === kind && all.some((one) => one.label === first.value?.label);
  if (!known && busiest(all)) first.value = { kind, label: busiest(all)?.label ?? "" };
  const source = all.find((one) => one.label === name) ?? all.find((one) => known && one.label === first.value?.label) ?? busiest(all) ?? all[0];
  useEffect(() => watchKinds([kind]), [kind]);
  const range = useSignal<Range>(RANGES[1] as Range);
  return (
    <>
      <div class="toolbar">
        <h1>Charts</h1>
        <div class="tools">
          <Segments label="of" options={KINDS.map((one) => [one, one])} value={kind} onChange={(value) => go("charts", value)} />
          <label class="inline">
            <span>{SINGULAR[kind]}</span>
            <select
              value={source?.label ?? ""}
              onChange={(event) => go("charts", kind, event.currentTarget.value)}
            >
              {all.map((one) => (
                <option value={one.label}>{readable(one.label)}</option>
              ))}
            </select>
          </label>
          <Segments
            label="back"
            options={RANGES.map((one) => [one.label, one.label])}
            value={range.value.label}
            onChange={(value) => (range.value = RANGES.find((one) => one.label === value) ?? range.value)}
          />
        </div>
      </div>
      {source ? <Charts key={`${source.uri}`} source={source} range={range.value} /> : <p class="empty">There is none to show.</p>}
    </>
  );
}

function useHistories(sources: Source[], range: Range): Shown {
  const shown = useSignal<Shown>({ histories: [], now: serviceNow() / 1000, problem: "" });
  const key = sources.map((one) => one.uri).join();
  useEffect(() => follow(sources, range, shown), [key, range]);
  return shown.value;
}

function Charts({ source, range }: { source: Source; range: Range }) {
  useEffect(() => watchKinds([source.kind, "Functions"]), [source.kind]);
  const one = useMemo(() => [source], [source.uri]);
  const { histories, now, problem } = useHistories(one, range);
  const values = histories[0]?.values;
  const common = { times: histories[0]?.times ?? [], seconds: range.seconds, now };
  const series = (label: string, list: (number | null)[] | undefined): Series => ({ label, values: list ?? [] });
  return (
    <>
      {problem && <p class="bad">{problem}</p>}
      <div class="charts">
        {source.kind === "Drives" && <Shares drive={source.label} range={range} />}
        <Chart
          title="Operations per second"
          {...common}
          format={count}
          series={[series("read", values?.ReadCommands), series("write", values?.WriteCommands)]}
        />
        <Chart
          title="Bandwidth"
          {...common}
          format={rate}
          series={[series("read", values?.ReadBytes), series("write", values?.WriteBytes)]}
        />
        <Chart
          title="Latency"
          {...common}
          format={latency}
          logarithmic
          series={[series("p50", values?.LatencyP50), series("p99", values?.LatencyP99), series("p99.9", values?.LatencyP999)]}
        />
      </div>
    </>
  );
}

/** What each function of a drive has of it. */
function Shares({ drive, range }: { drive: string; range: Range }) {
  const view = box.value.drives.find((one) => one.name === drive);
  const sources = choices("Functions").filter((source) => view?.functions.some((one) => one.uri === source.uri));
  const { histories, now } = useHistories(sources, range);
  const of = (read: "ReadCommands" | "ReadBytes", write: "WriteCommands" | "WriteBytes") => {
    const { times, values } = aligned(histories, (history, at) => {
      const [first, second] = [history.values[read][at] ?? null, history.values[write][at] ?? null];
      return first === null && second === null ? null : (first ?? 0) + (second ?? 0);
    });
    const series = sources.map((source, at) => ({ label: source.label, values: values[at] ?? [] }));
    // What has done nothing has no area.
    const busy = series.filter((one) => one.values.some((value) => value !== null));
    return { times, series: busy.length ? busy : series };
  };
  const common = { stacked: true, seconds: range.seconds, now };
  return (
    <>
      <Chart title="Shares: operations per second" {...of("ReadCommands", "WriteCommands")} {...common} format={count} />
      <Chart title="Shares: bandwidth" {...of("ReadBytes", "WriteBytes")} {...common} format={rate} />
    </>
  );
}
