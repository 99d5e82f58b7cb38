//! The changes of ports as Redfish requests: edits of the configuration, which are made whatever else
//! was changed in it meanwhile.

import { EDIT } from "../api/addresses";
import { box } from "../model/store";
import { plural } from "../ui/format";
import type { Change } from "./change";

function edit(title: string, what: object): Change {
  return { title, method: "POST", target: EDIT, body: { Edits: [what] } };
}

const of = (name: string) => ({ object: { port: name } });

/** Without `subsystems`, those are reached through it that are at every other port. */
export function addPort(name: string, listen: string, subsystems: string[] | undefined, after: () => void): Change {
  const keys = { ...(name ? { name } : {}), listen };
  return { ...edit(`Add port ${name || listen}`, { edit: "add-port", keys, ...(subsystems ? { subsystems } : {}) }), after };
}

export function removePort(name: string): Change {
  return edit(`Remove port ${name}`, { edit: "remove", ...of(name) });
}

export function enablePort(name: string, enabled: boolean): Change {
  return edit(`${enabled ? "Enable" : "Disable"} port ${name}`, { edit: enabled ? "enable" : "disable", ...of(name) });
}

/** The states of ANA groups, as the configuration calls them; the first is that of groups without one. */
export const ANA_STATES = ["optimized", "non-optimized", "inaccessible", "persistent-loss", "change"];

/** A group that is optimized has no entry. */
export function setAnaState(name: string, group: string, state: string): Change {
  const what = state === ANA_STATES[0] ? { remove: { ana: [group] } } : { add: { ana: { [group]: state } } };
  return edit(`Have ANA group ${group} ${state} at port ${name}`, { edit: "set", ...of(name), ...what });
}

/** The controllers that hosts have through a port. */
export function controllersAt(name: string): number {
  return box.value.hosts.flatMap((host) => host.connections).filter((one) => one.port === name).length;
}

/** It is closed, and has ended when its last host has left. */
export function drainPort(name: string): Change {
  const until = () => {
    const left = controllersAt(name);
    return left ? `The port is closed; ${plural(left, "controller")} of hosts still to leave.` : undefined;
  };
  return { ...edit(`Drain port ${name}`, { edit: "disable", ...of(name) }), until };
}
