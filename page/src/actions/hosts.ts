//! The changes of who may connect as Redfish requests.

import { NVMEOF } from "../api/addresses";
import type { Connection } from "../api/types";
import { type DriveView, type HostView, hostsEndpointOf } from "../model/box";
import type { Change } from "./change";

/** A host is described, so that it can be allowed to connect. */
export function describeHost(nqn: string, after: () => void): Change {
  const identifiers = [{ DurableName: nqn, DurableNameFormat: "NQN" }];
  return {
    title: `Add host ${nqn}`,
    method: "POST",
    target: `${NVMEOF}/Endpoints`,
    body: { EndpointProtocol: "NVMeOverFabrics", Identifiers: identifiers, ConnectedEntities: [{ EntityRole: "Initiator" }] },
    after,
  };
}

/** It is not described any more. */
export function forgetHost(host: HostView): Change | undefined {
  if (!host.uri) return undefined;
  return { title: `Remove host ${host.nqn}`, method: "DELETE", target: host.uri };
}

/** A host, or without one every host, may connect to the subsystem of a drive. */
export function allow(host: HostView | undefined, drive: DriveView): Change {
  const target = hostsEndpointOf(drive) ?? "";
  const initiators = host?.uri ? [{ "@odata.id": host.uri }] : [];
  return {
    title: `Allow ${host?.nqn ?? "every host"} to connect to ${drive.name}`,
    method: "POST",
    target: `${NVMEOF}/Connections`,
    body: {
      ConnectionType: "Storage",
      Links: { InitiatorEndpoints: initiators, TargetEndpoints: [{ "@odata.id": target }] },
      ...(host ? {} : { Oem: { Ebof: { AnyHost: true } } }),
    },
  };
}

export function forbid(permission: Connection): Change {
  return {
    title: `Forbid: ${permission.Name ?? permission["@odata.id"]}`,
    method: "DELETE",
    target: permission["@odata.id"],
    ifMatch: permission["@odata.etag"],
  };
}
