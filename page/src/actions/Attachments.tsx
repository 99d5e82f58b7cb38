//! What a namespace is attached to, and what attaches and detaches it: in the picture and elsewhere.

import type { ComponentChildren } from "preact";
import { mayChange } from "../api/session";
import type { NamespaceView } from "../model/box";
import { functionAt, functions } from "../model/store";
import { readable } from "../ui/format";
import { Button, Choose } from "../ui/parts";
import { attach, detach } from "./box";
import { propose } from "./change";

/** `name` shows the name of a function. */
export function Attachments({ one, name }: { one: NamespaceView; name: (name: string) => ComponentChildren }) {
  // Every host at last: most namespaces are for one.
  const candidates = functions.value
    .filter((each) => each.drive === one.drive && !one.functions.includes(each.uri))
    .sort((a, b) => Number(a.fixed) - Number(b.fixed));
  const hosts = one.hosts.filter((host) => host !== "*");
  return (
    <>
      <h3>Attached to</h3>
      {one.functions.length === 0 && <p class="quiet">no function</p>}
      <ul class="plain attached">
        {one.functions.map((uri) => (
          <li>
            {name(functionAt(uri)?.name ?? uri)}
            <DetachButton namespace={one} uri={uri} />
          </li>
        ))}
        {hosts.map((nqn) => (
          <li>
            <code>{nqn}</code>
          </li>
        ))}
      </ul>
      {mayChange() && (
        <Choose
          label="Attach to"
          name="attach"
          action="Attach …"
          options={candidates.map((each) => [each.name, each.fixed ? `${readable(each.name)}, every host` : each.name])}
          onChoose={(chosen) => {
            const target = functions.value.find((each) => each.name === chosen);
            if (target) void propose(attach(one, target));
          }}
        />
      )}
    </>
  );
}

export function DetachButton({ namespace, uri }: { namespace: NamespaceView; uri: string }) {
  const change = detach(namespace, uri);
  if (!change || !mayChange()) return null;
  return (
    <Button class="small" aria-label={change.title} onClick={() => void propose(change)}>
      Detach …
    </Button>
  );
}
