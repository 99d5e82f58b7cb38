//! The changes of hosts' keys, and of what subsystems demand, as Redfish requests.

import { effect, signal } from "@preact/signals";
import { KEYS } from "../api/addresses";
import { gate } from "../api/session";
import type { Resource } from "../api/types";
import type { KeyKind } from "../model/keys";
import type { Change } from "./change";

export interface StoredKey extends Resource {
  NVMeoF?: { NQN?: string };
  Oem?: { Ebof?: KeyOem };
}

export interface KeyOem {
  Kind?: KeyKind;
  Hash?: string | null;
  Bits?: number;
  Since?: string | null;
  ConnectedControllers?: number;
}

export interface KeyPolicy extends Resource {
  IsDefault?: boolean;
  Oem?: { Ebof?: { Security?: string; SubsystemNQN?: string | null } };
}

/** A key that was made, until it is given to its host. */
export interface MadeKey {
  host: string;
  kind: KeyKind;
  text: string;
}

/** The one that is shown; it goes with its user. */
export const made = signal<MadeKey | null>(null);
effect(() => {
  if (gate.value !== "in") made.value = null;
});

export const KIND_WORDS: Record<KeyKind, string> = {
  DHCHAP: "host proves itself",
  DHCHAPController: "target proves itself",
  TLS: "TLS",
};

/** A key is added beside those that there are, or takes the place of the one that there can be. */
export function addKey(host: string, kind: KeyKind, text: string, replace: boolean, after: () => void): Change {
  return {
    title: replace ? `Replace the key of ${host} (${KIND_WORDS[kind]})` : `Add a key of ${host} (${KIND_WORDS[kind]})`,
    method: "POST",
    target: KEYS,
    body: {
      KeyString: text,
      KeyType: "NVMeoF",
      NVMeoF: { NQN: host, ...(kind === "DHCHAPController" ? { HostKeyId: "" } : {}) },
      ...(replace ? { Oem: { Ebof: { Replace: true } } } : {}),
    },
    after,
  };
}

/** `isLast`: the host has no other key of this kind. */
export function removeKey(key: StoredKey, isLast: boolean): Change {
  const id = key.Id ?? "";
  const last = "This is the host's last key of this kind. It cannot connect any more where that is demanded; elsewhere anyone can connect by its name.";
  return {
    title: `Remove key ${id} of ${key.NVMeoF?.NQN}`,
    method: "DELETE",
    target: key["@odata.id"],
    ...(isLast ? { warning: last, confirm: id } : {}),
  };
}

export function demand(policy: KeyPolicy, security: string): Change {
  return {
    title: `Change what ${policy.Oem?.Ebof?.SubsystemNQN} demands`,
    method: "PATCH",
    target: policy["@odata.id"],
    body: { Oem: { Ebof: { Security: security } } },
    ifMatch: policy["@odata.etag"],
  };
}
