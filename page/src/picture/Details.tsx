//! What is selected in the picture, and what can be done with it without dragging.

import type { ComponentChildren } from "preact";
import { Attachments } from "../actions/Attachments";
import { mayChange } from "../api/session";
import type { DriveView, HostView, NamespaceView, PortView } from "../model/box";
import { box, drives, functions, namespaces, ports } from "../model/store";
import { href } from "../router";
import { bytes, readable, time } from "../ui/format";
import { Badge, Button, Facts, Health } from "../ui/parts";
import { kindOf, moving, nameOf, pick, selectByName, selected } from "./state";
import { FunctionDetails } from "./FunctionDetails";
import { ExpandButton } from "./NodeView";

export function Details() {
  const key = selected.value;
  const content = key ? contentOf(key) : undefined;
  return (
    <aside class={`details ${moving.value ? "moving" : ""} ${content ? "" : "idle"}`} tabIndex={-1} aria-label="Selected object">
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

function NamespaceDetails({ one }: { one: NamespaceView }) {
  return (
    <>
      <h2 class="wrap">{readable(one.name)}</h2>
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
            {readable(name)}
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
            {readable(one.function)} at {one.port}
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
        <span class="wrap">{readable(drive.name)}</span> <Health value={drive.health} />
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
