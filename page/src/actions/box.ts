//! The changes of the box as Redfish requests: who gets which function and namespace.

import type { FunctionView, NamespaceView, PortView } from "../model/box";
import { endpointOf } from "../model/box";
import { functionAt, ports } from "../model/store";
import type { Change } from "./change";

const ref = (uri: string) => ({ "@odata.id": uri });

/** A function is given to a port, or moves to it: the zone gets one more endpoint. The others are
 * not named, so that nothing is said of what somebody else has given meanwhile. */
export function giveToPort(one: FunctionView, port: PortView): Change {
  return {
    title: one.port ? `Move ${one.name} to port ${port.name}` : `Give ${one.name} to port ${port.name}`,
    method: "POST",
    target: `${port.zone ?? port.uri}/Actions/Zone.AddEndpoint`,
    body: { Endpoint: ref(endpointOf(one, port)) },
  };
}

export function takeFromPort(one: FunctionView): Change | undefined {
  const port = ports.value.find((each) => each.name === one.port);
  if (!port?.zone) return undefined;
  return {
    title: `Take ${one.name} from port ${port.name}`,
    method: "POST",
    target: `${port.zone}/Actions/Zone.RemoveEndpoint`,
    body: { Endpoint: ref(endpointOf(one, port)) },
  };
}

/** A namespace that others have and that is not shared goes from them to the function. */
export function attach(namespace: NamespaceView, one: FunctionView): Change {
  const map = namespace.resource.Actions?.Oem?.["#EbofVolume.Map"]?.target;
  const others = namespace.functions.some((uri) => uri !== one.uri);
  if (map && others && !namespace.shared && !one.fixed) {
    return { title: `Move ${namespace.name} to ${one.name}`, method: "POST", target: map, body: { Controller: ref(one.uri) } };
  }
  return {
    title: `Attach ${namespace.name} to ${one.name}`,
    method: "POST",
    target: one.attach ?? `${one.uri}/Actions/StorageController.AttachNamespaces`,
    body: { Namespaces: [ref(namespace.uri)] },
  };
}

export function detach(namespace: NamespaceView, uri: string): Change | undefined {
  const one = functionAt(uri);
  if (!one) return undefined;
  return {
    title: `Detach ${namespace.name} from ${one.name}`,
    method: "POST",
    target: one.detach ?? `${one.uri}/Actions/StorageController.DetachNamespaces`,
    body: { Namespaces: [ref(namespace.uri)] },
  };
}

export interface Share {
  Weight?: number;
  IOPSLimit?: number | null;
  BytesPerSecondLimit?: number | null;
  MinimumIOPS?: number | null;
}

export function share(one: FunctionView, values: Share): Change {
  return {
    title: `Share of ${one.name}`,
    method: "PATCH",
    target: one.uri,
    body: { Oem: { Ebof: values } },
    ifMatch: one.etag,
  };
}
