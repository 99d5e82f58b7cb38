//! The ports: those of the box and of its configuration, which functions they have, and what adds,
//! closes and removes them.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { ANA_STATES, addPort, controllersAt, drainPort, enablePort, removePort, setAnaState } from "../actions/ports";
import { CONFIGURATION } from "../api/addresses";
import { get } from "../api/client";
import { mayAdminister } from "../api/session";
import type { Resource } from "../api/types";
import type { PortView } from "../model/box";
import { byNumber } from "../model/box";
import { bytes, current, iops } from "../model/metrics";
import { functions, ports } from "../model/store";
import { href } from "../router";
import { count, plural, rate, readable } from "../ui/format";
import { Badge, Button, Field, Select, Table } from "../ui/parts";
import { useResource } from "./use";

interface Configured extends Resource {
  Ports?: { Name: string; Listen: string; Enabled: boolean; AnaGroups?: { Group: number; State: string }[] }[];
}

interface Row {
  name: string;
  listen: string;
  direct: boolean;
  /** Whether the configuration has it enabled. */
  enabled: boolean;
  /** The ANA groups that are not optimized here: `2 non-optimized`. */
  ana: string[];
  /** As it is there for hosts; none if it is disabled or missing. */
  view: PortView | undefined;
}

/** So many functions of a port are named. */
const NAMED_MAX = 3;

export function PortsView() {
  const { value, problem } = useResource(
    "ports",
    () => get<Configured>(CONFIGURATION),
    () => true,
  );
  const rows = rowsOf(ports.value, value?.Ports ?? []);
  return (
    <>
      <div class="toolbar">
        <h1>Ports</h1>
      </div>
      {problem && <p class="bad">{problem}</p>}
      <Table
        caption="Ports"
        rows={rows}
        id={(port) => port.name}
        empty="The target has no ports."
        columns={[
          { title: "Port", by: (port) => port.name, cell: (port) => <span class="wrap">{port.name}</span> },
          { title: "State", by: (port) => stateOf(port), cell: (port) => <State port={port} /> },
          { title: "Kind", extra: true, by: (port) => (port.direct ? "direct" : "fabric"), cell: (port) => <Badge>{port.direct ? "direct" : "fabric"}</Badge> },
          { title: "Listens at", extra: true, by: (port) => port.listen, cell: (port) => <code>{port.listen || "–"}</code> },
          { title: "Functions", by: (port) => functionsOf(port.name).length, cell: (port) => <Functions name={port.name} /> },
          { title: "ANA groups", by: (port) => port.ana.join(", "), cell: (port) => <Ana port={port} /> },
          { title: "IOPS", number: true, extra: true, by: (port) => iops(sample(port)), cell: (port) => count(iops(sample(port))) },
          { title: "Bandwidth", number: true, extra: true, by: (port) => bytes(sample(port)), cell: (port) => rate(bytes(sample(port))) },
          { title: "Actions", bare: true, cell: (port) => <PortButtons port={port} /> },
        ]}
      />
      {mayAdminister() && <SetAna ports={rows.filter((port) => !port.direct).map((port) => port.name)} />}
      {mayAdminister() && <Add />}
    </>
  );
}

function rowsOf(views: PortView[], configured: NonNullable<Configured["Ports"]>): Row[] {
  const names = new Set([...views.map((one) => one.name), ...configured.map((one) => one.Name)]);
  return [...names]
    .map((name) => {
      const view = views.find((one) => one.name === name);
      const own = configured.find((one) => one.Name === name);
      const listen = view?.listen || own?.Listen || "";
      const ana = (own?.AnaGroups ?? []).map((one) => `${one.Group} ${one.State}`);
      return { name, listen, direct: view?.direct ?? listen.startsWith("vfio-user:"), enabled: own?.Enabled ?? true, ana, view };
    })
    .sort((a, b) => Number(a.direct) - Number(b.direct) || byNumber(a, b));
}

function sample(port: Row) {
  return port.view && current.value.get(port.view.uri);
}

function stateOf(port: Row): string {
  return !port.enabled ? "disabled" : port.view ? "open" : "missing";
}

function State({ port }: { port: Row }) {
  const state = stateOf(port);
  const left = state === "disabled" ? controllersAt(port.name) : 0;
  const tone = { open: "good", missing: "warn" } as const;
  return (
    <>
      <Badge {...(state === "disabled" ? {} : { tone: tone[state as keyof typeof tone] })}>{state}</Badge>
      {left > 0 && <small class="quiet"> {plural(left, "controller")} to leave</small>}
    </>
  );
}

/** How hosts reach namespaces through it. */
function Ana({ port }: { port: Row }) {
  if (port.direct) return <>–</>;
  if (!port.ana.length) return <span class="quiet">optimized</span>;
  return <span class="wrap">{port.ana.join(", ")}</span>;
}

function functionsOf(name: string): string[] {
  return functions.value.filter((one) => one.port === name).map((one) => readable(one.name));
}

function Functions({ name }: { name: string }) {
  const names = functionsOf(name);
  if (!names.length) return <>none</>;
  const more = names.length - NAMED_MAX;
  return (
    <span title={names.join(", ")}>
      {names.slice(0, NAMED_MAX).join(", ")}
      {more > 0 && <span class="quiet"> and {more} more</span>}
    </span>
  );
}

function PortButtons({ port }: { port: Row }) {
  const { name, enabled } = port;
  const able = enablePort(name, !enabled);
  const [drain, remove] = [drainPort(name), removePort(name)];
  return (
    <span class="buttons">
      <a href={href("charts", "Ports", name)} aria-label={`Charts of ${name}`}>
        Charts
      </a>
      {mayAdminister() && (
        <>
          <Button class="small" aria-label={able.title} onClick={() => void propose(able)}>
            {enabled ? "Disable …" : "Enable …"}
          </Button>
          {enabled && (
            <Button class="small" aria-label={drain.title} onClick={() => void propose(drain)}>
              Drain …
            </Button>
          )}
          <Button class="small danger" aria-label={remove.title} onClick={() => void propose(remove)}>
            Remove …
          </Button>
        </>
      )}
    </span>
  );
}

function SetAna({ ports }: { ports: string[] }) {
  const chosen = useSignal("");
  const group = useSignal("1");
  const state = useSignal(ANA_STATES[1] ?? "");
  const port = ports.includes(chosen.value) ? chosen.value : (ports[0] ?? "");
  if (!port) return null;
  const number = Number(group.value);
  const isGroup = Number.isInteger(number) && number >= 1 && number <= 128;
  const submit = (event: Event) => {
    event.preventDefault();
    void propose(setAnaState(port, String(number), state.value));
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Set how hosts reach an ANA group</h2>
      <div class="row">
        <Select label="Through" name="ana-port" value={port} options={ports.map((name) => [name, name])} onChange={(value) => (chosen.value = value)} />
        <Field
          label="ANA group"
          name="ana-group"
          value={group.value}
          invalid={!isGroup}
          hint="1 to 128; namespaces are in group 1 if nothing else is said"
          onInput={(value) => (group.value = value)}
        />
        <Select label="State" name="ana-state" value={state.value} options={ANA_STATES.map((name) => [name, name])} onChange={(value) => (state.value = value)} />
        <Button type="submit" disabled={!isGroup}>
          Set …
        </Button>
      </div>
    </form>
  );
}

function Add() {
  const name = useSignal("");
  const listen = useSignal("");
  const reach = useSignal("all");
  const submit = (event: Event) => {
    event.preventDefault();
    const done = () => {
      name.value = "";
      listen.value = "";
    };
    void propose(addPort(name.value.trim(), listen.value.trim(), reach.value === "none" ? [] : undefined, done));
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Add a port</h2>
      <div class="row">
        <Field
          label="Listens at"
          name="listen"
          value={listen.value}
          hint="tcp://192.0.2.1:4420, rdma://192.0.2.1:4420, or vfio-user:/run/ebof/vm1.sock for a virtual machine"
          onInput={(value) => (listen.value = value)}
        />
        <Field label="Name" name="port-name" value={name.value} hint="without one, its address" onInput={(value) => (name.value = value)} />
        <Select
          label="Reached through it"
          name="reach"
          value={reach.value}
          options={[
            ["all", "what is at every other port"],
            ["none", "nothing yet"],
          ]}
          onChange={(value) => (reach.value = value)}
        />
        <Button type="submit" disabled={!listen.value.trim()}>
          Add …
        </Button>
      </div>
    </form>
  );
}
