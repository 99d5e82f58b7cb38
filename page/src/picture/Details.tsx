//! What is selected in the picture, and what can be done with it without dragging.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Attachments, DetachButton } from "../actions/Attachments";
import { attach, giveToPort, share, takeFromPort } from "../actions/box";
import { propose } from "../actions/change";
import { mayChange } from "../api/session";
import { type DriveView, type FunctionView, type HostView, type NamespaceView, type PortView, endpointOf } from "../model/box";
import { box, drives, functions, namespaces, ports } from "../model/store";
import { href } from "../router";
import { bytes, count, parseBytes, parseCount, rate, time } from "../ui/format";
import { Badge, Button, Choose, Facts, Field, Health } from "../ui/parts";
import { kindOf, nameOf, pick, selectByName, selected } from "./state";
import { ExpandButton } from "./NodeView";

export function Details() {
  const key = selected.value;
  const content = key ? contentOf(key) : undefined;
  return (
    <aside class="details" tabIndex={-1} aria-label="Selected object">
      {content && (
        <button type="button" class="plain-button close" aria-label="close" onClick={() => (selected.value = null)}>
          ✕
        </button>
      )}
      {content ?? <p class="quiet">Select something in the picture to see what it is and what can be done with it.</p>}
    </aside>
  );
}

function contentOf(key: string): ComponentChildren {
  const name = nameOf(key);
  switch (kindOf(key)) {
    case "host": {
      const host = box.value.hosts.find((one) => one.nqn === name);
      return host && <HostDetails host={host} />;
    }
    case "port": {
      const port = ports.value.find((one) => one.name === name);
      return port && <PortDetails port={port} />;
    }
    case "function": {
      const one = functions.value.find((each) => each.name === name);
      return one && <FunctionDetails key={one.name} one={one} />;
    }
    case "namespace": {
      const one = namespaces.value.find((each) => each.name === name);
      return one && <NamespaceDetails key={one.name} one={one} />;
    }
    default: {
      const drive = drives.value.find((one) => one.name === name);
      return drive && <DriveDetails drive={drive} />;
    }
  }
}

function FunctionDetails({ one }: { one: FunctionView }) {
  const own = namespaces.value.filter((each) => one.namespaces.includes(each.uri) || each.functions.includes(one.uri));
  const take = takeFromPort(one);
  const free = namespaces.value.filter((each) => each.drive === one.drive && !own.includes(each));
  return (
    <>
      <h2>
        {one.name} <Badge tone={one.online ? "good" : "warn"}>{one.online ? "online" : "offline"}</Badge>
      </h2>
      <Facts
        rows={[
          ["Port", one.fixed ? portsOf(one) : (one.port ?? "none")],
          ["Subsystem", <code>{one.nqn || "–"}</code>],
          ["Queues, vectors", one.fixed ? "what is left" : `${one.queues ?? "–"}, ${one.interrupts ?? "–"}`],
          ["Hosts", one.hosts.length ? one.hosts.map((host) => <code class="block">{host.NQN}</code>) : "none"],
        ]}
      />
      <p class="links">
        <a href={href("charts", "Functions", one.name)}>Charts</a>
      </p>
      {mayChange() && !one.fixed && (
        <>
          <h3>Port</h3>
          <Choose
            label={one.port ? "Move to" : "Give to"}
            name="port"
            action={one.port ? "Move …" : "Give …"}
            options={ports.value.filter((port) => port.zone && port.name !== one.port).map((port) => [port.name, port.name])}
            onChoose={(name) => {
              const port = ports.value.find((each) => each.name === name);
              if (port) void propose(giveToPort(one, port));
            }}
          />
          <p class="buttons">
            <Button class="small" onClick={() => pick(`function:${one.name}`)}>
              Choose in the picture
            </Button>
            {take && (
              <Button class="small" onClick={() => void propose(take)}>
                Take from {one.port} …
              </Button>
            )}
          </p>
        </>
      )}
      <h3>Namespaces</h3>
      {own.length === 0 && <p class="quiet">none</p>}
      <ul class="plain">
        {own.map((each) => (
          <li>
            <button type="button" class="link" onClick={() => selectByName("namespace", each.name)}>
              {each.name}
            </button>{" "}
            {bytes(each.bytes)}
            <DetachButton namespace={each} uri={one.uri} />
          </li>
        ))}
      </ul>
      {mayChange() && (
        <Choose
          label="Attach"
          name="attach"
          action="Attach …"
          options={free.map((each) => [each.name, `${each.name}, ${bytes(each.bytes)}`])}
          onChoose={(name) => {
            const each = namespaces.value.find((other) => other.name === name);
            if (each) void propose(attach(each, one));
          }}
        />
      )}
      {one.weight !== undefined && <ShareForm one={one} />}
    </>
  );
}

/** The ports of what stays at its ports, as the configuration has them. */
function portsOf(one: FunctionView): string {
  const names = ports.value.filter((port) => port.endpoints.includes(endpointOf(one, port))).map((port) => port.name);
  return names.join(", ") || "none";
}

/** Empty is no limit. */
function limitOf(text: string, parse: (text: string) => number | undefined): number | null | undefined {
  return text.trim() === "" ? null : parse(text);
}

function ShareForm({ one }: { one: FunctionView }) {
  const text = (value: number | null | undefined) => (value === null || value === undefined ? "" : count(value).replaceAll(" ", ""));
  const weight = useSignal(String(one.weight ?? 1));
  const limit = useSignal(text(one.iopsLimit));
  const bandwidth = useSignal(text(one.bytesLimit));
  const least = useSignal(text(one.minimumIops));
  if (!mayChange()) {
    return (
      <Facts
        rows={[
          ["Weight", one.weight],
          ["IOPS limit", one.iopsLimit ? count(one.iopsLimit) : "none"],
          ["Bandwidth limit", one.bytesLimit ? rate(one.bytesLimit) : "none"],
          ["Minimum IOPS", one.minimumIops ? count(one.minimumIops) : "none"],
        ]}
      />
    );
  }
  const values = {
    Weight: Number(weight.value),
    IOPSLimit: limitOf(limit.value, parseCount),
    BytesPerSecondLimit: limitOf(bandwidth.value, parseBytes),
    MinimumIOPS: limitOf(least.value, parseCount),
  };
  const wrong = (value: unknown) => value === undefined || Number.isNaN(value);
  const invalid = Object.values(values).some(wrong);
  const submit = (event: Event) => {
    event.preventDefault();
    const { Weight, IOPSLimit, BytesPerSecondLimit, MinimumIOPS } = values;
    if (invalid || IOPSLimit === undefined || BytesPerSecondLimit === undefined || MinimumIOPS === undefined) return;
    void propose(share(one, { Weight, IOPSLimit, BytesPerSecondLimit, MinimumIOPS }));
  };
  return (
    <form class="share" onSubmit={submit}>
      <h3>Share of the drive</h3>
      <div class="grid-2">
        <Field label="Weight" value={weight.value} onInput={(value) => (weight.value = value)} invalid={wrong(values.Weight)} />
        <Field label="IOPS limit" value={limit.value} onInput={(value) => (limit.value = value)} invalid={wrong(values.IOPSLimit)} />
        <Field label="Bytes/s limit" value={bandwidth.value} onInput={(value) => (bandwidth.value = value)} invalid={wrong(values.BytesPerSecondLimit)} />
        <Field label="Minimum IOPS" value={least.value} onInput={(value) => (least.value = value)} invalid={wrong(values.MinimumIOPS)} />
      </div>
      <p class="quiet">Weights are relative, 1 to 1000. Empty is no limit; 50k and 1G are understood.</p>
      <Button type="submit" disabled={invalid}>
        Change …
      </Button>
    </form>
  );
}

function NamespaceDetails({ one }: { one: NamespaceView }) {
  return (
    <>
      <h2>{one.name}</h2>
      <Facts
        rows={[
          ["Size", bytes(one.bytes)],
          ["Block", `${one.blockBytes} B`],
          ["UUID", <code>{one.uuid || "–"}</code>],
          ["Shared", one.shared ? "yes" : "no"],
          ["Write protected", one.protected ? "yes" : "no"],
        ]}
      />
      <p class="links">
        <a href={href("namespaces", one.name)}>Format, sanitize, delete</a>
      </p>
      <Attachments
        one={one}
        name={(name) => (
          <button type="button" class="link" onClick={() => selectByName("function", name)}>
            {name}
          </button>
        )}
      />
      {mayChange() && (
        <p class="buttons">
          <Button class="small" onClick={() => pick(`namespace:${one.name}`)}>
            Choose in the picture
          </Button>
        </p>
      )}
    </>
  );
}

function PortDetails({ port }: { port: PortView }) {
  const own = functions.value.filter((one) => one.port === port.name);
  return (
    <>
      <h2>
        {port.name} <Badge>{port.direct ? "direct" : "fabric"}</Badge>
      </h2>
      <Facts
        rows={[
          ["Listens at", <code>{port.listen || "–"}</code>],
          ["Functions", own.length],
        ]}
      />
      <p class="links">
        <a href={href("charts", "Ports", port.name)}>Charts</a> <a href={href("ports")}>All ports</a>
      </p>
      <ul class="plain">
        {own.map((one) => (
          <li>
            <button type="button" class="link" onClick={() => selectByName("function", one.name)}>
              {one.name}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

function HostDetails({ host }: { host: HostView }) {
  return (
    <>
      <h2>Host</h2>
      <p>
        <code>{host.nqn}</code>
      </p>
      <p class="links">
        <a href={href("charts", "Hosts", host.nqn)}>Charts</a> <a href={href("hosts")}>All hosts</a>
      </p>
      <h3>Connections</h3>
      {host.connections.length === 0 && <p class="quiet">not connected</p>}
      <ul class="plain">
        {host.connections.map((one) => (
          <li>
            {one.function} at {one.port}
            <span class="quiet">
              {" "}
              from {one.address}, {one.queues} I/O queues, since {time(one.since)}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function DriveDetails({ drive }: { drive: DriveView }) {
  return (
    <>
      <h2>
        {drive.name} <Health value={drive.health} />
      </h2>
      {drive.problem && <p class="bad">{drive.problem}</p>}
      <Facts
        rows={[
          ["Subsystem", <code>{drive.nqn || "–"}</code>],
          ["Capacity", bytes(drive.resource?.CapacityBytes)],
          ["Not allocated", bytes(drive.resource?.Oem?.Ebof?.UnallocatedBytes)],
          ["Functions", drive.functions.length],
          ["Namespaces", drive.namespaces.length],
        ]}
      />
      <p class="links">
        <a href={href("drives", drive.name)}>Health, logs, firmware</a> <a href={href("charts", "Drives", drive.name)}>Charts</a>
      </p>
      <ExpandButton drive={drive.name} />
    </>
  );
}
