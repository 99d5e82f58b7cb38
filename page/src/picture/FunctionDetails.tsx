//! A function that is selected in the picture: its port, its namespaces and its share of the drive.

import { DetachButton } from "../actions/Attachments";
import { attach, giveToPort, takeFromPort } from "../actions/box";
import { propose } from "../actions/change";
import { mayChange } from "../api/session";
import { type FunctionView, endpointOf } from "../model/box";
import { namespaces, ports } from "../model/store";
import { href } from "../router";
import { bytes, readable } from "../ui/format";
import { Badge, Button, Choose, Facts } from "../ui/parts";
import { ShareForm, shareOf } from "./ShareForm";
import { pick, selectByName } from "./state";

export function FunctionDetails({ one }: { one: FunctionView }) {
  return (
    <>
      <h2>
        <span class="wrap">{readable(one.name)}</span> <Badge tone={one.online ? "good" : "warn"}>{one.online ? "online" : "offline"}</Badge>
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
      {mayChange() && !one.fixed && <PortOf one={one} />}
      <NamespacesOf one={one} />
      {one.weight !== undefined && <ShareForm key={JSON.stringify(shareOf(one))} one={one} />}
    </>
  );
}

/** The ports of what stays at its ports, as the configuration has them. */
function portsOf(one: FunctionView): string {
  const names = ports.value.filter((port) => port.endpoints.includes(endpointOf(one, port))).map((port) => port.name);
  return names.join(", ") || "none";
}

function PortOf({ one }: { one: FunctionView }) {
  const take = takeFromPort(one);
  return (
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
  );
}

function NamespacesOf({ one }: { one: FunctionView }) {
  const own = namespaces.value.filter((each) => one.namespaces.includes(each.uri) || each.functions.includes(one.uri));
  const free = namespaces.value.filter((each) => each.drive === one.drive && !own.includes(each));
  return (
    <>
      <h3>Namespaces</h3>
      {own.length === 0 && <p class="quiet">none</p>}
      <ul class="plain">
        {own.map((each) => (
          <li>
            <button type="button" class="link" onClick={() => selectByName("namespace", each.name)}>
              {readable(each.name)}
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
          options={free.map((each) => [each.name, `${readable(each.name)}, ${bytes(each.bytes)}`])}
          onChoose={(name) => {
            const each = namespaces.value.find((other) => other.name === name);
            if (each) void propose(attach(each, one));
          }}
        />
      )}
    </>
  );
}
