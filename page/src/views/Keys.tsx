//! The keys of hosts: who has which, another one beside them, and what subsystems demand. A key is
//! made by the browser, and shown once (KeyDialog.tsx).

import { type Signal, useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { type KeyOem, type KeyPolicy, KIND_WORDS, type StoredKey, addKey, demand, made, removeKey } from "../actions/keys";
import { KEYS, KEY_POLICIES, KEY_SERVICE } from "../api/addresses";
import { get, members } from "../api/client";
import type { Resource } from "../api/types";
import { type KeyHash, type KeyKind, generateKey, hashesOf } from "../model/keys";
import { box } from "../model/store";
import { Badge, Button, Field, Select, Table, Time } from "../ui/parts";
import { useResource } from "./use";

interface Service extends Resource {
  Oem?: { Ebof?: { Durable?: boolean; ConfiguredKeys?: (KeyOem & { HostNQN?: string; Place?: string | null })[] } };
}

/** A key, stored here or named by the configuration. */
interface Row {
  id: string;
  host: string;
  kind: KeyKind;
  oem: KeyOem;
  place: string | undefined;
  stored: StoredKey | undefined;
  /** Whether another one of its kind was added later. */
  older: boolean;
  /** Whether the host has no other of its kind. */
  only: boolean;
}

const KINDS: [KeyKind, string][] = [
  ["DHCHAP", "the host proves itself (DH-HMAC-CHAP)"],
  ["DHCHAPController", "the target proves itself to it"],
  ["TLS", "TLS, which also encrypts"],
];

export function KeysView() {
  const { value, problem } = useResource(
    "keys",
    async () => {
      const [service, stored, policies] = await Promise.all([
        get<Service>(KEY_SERVICE),
        members<StoredKey>(KEYS),
        members<KeyPolicy>(KEY_POLICIES),
      ]);
      return { service: service.Oem?.Ebof ?? {}, rows: rowsOf(service, stored), policies };
    },
    () => true,
  );
  const wanted = useSignal<{ host: string; kind: KeyKind }>({ host: "", kind: "DHCHAP" });
  const rows = value?.rows ?? [];
  return (
    <>
      <div class="toolbar">
        <h1>Keys</h1>
      </div>
      {problem && <p class="bad">{problem}</p>}
      {value?.service.Durable === false && (
        <p class="warning">The target has no state directory: keys that are added here are gone after a restart.</p>
      )}
      <KeyTable rows={rows} onRotate={(row) => create(row.host, row.kind, 1, rows)} />
      <div class="cards">
        <NewKey wanted={wanted} onMade={(host, kind, hash) => create(host, kind, hash, rows)} />
      </div>
      <h2>What subsystems demand</h2>
      <Policies rows={value?.policies ?? []} />
    </>
  );
}

function rowsOf(service: Service, stored: StoredKey[]): Row[] {
  const configured = (service.Oem?.Ebof?.ConfiguredKeys ?? []).map((key, at) => ({
    id: `configured ${at}`,
    host: key.HostNQN ?? "",
    kind: key.Kind ?? "DHCHAP",
    oem: key,
    place: key.Place ?? "configuration",
    stored: undefined,
  }));
  const own = stored.map((key) => ({
    id: key.Id ?? "",
    host: key.NVMeoF?.NQN ?? "",
    kind: key.Oem?.Ebof?.Kind ?? "DHCHAP",
    oem: key.Oem?.Ebof ?? {},
    place: undefined,
    stored: key,
  }));
  const all = [...configured, ...own];
  return all.map((row, at) => {
    const same = (other: (typeof all)[number]) => other !== row && other.host === row.host && other.kind === row.kind;
    return { ...row, older: all.slice(at + 1).some(same), only: !all.some(same) };
  });
}

/** Makes a key and proposes to add it; it is shown once that is done. */
function create(host: string, kind: KeyKind, hash: KeyHash, rows: Row[]): void {
  const text = generateKey(kind, hash);
  // There is one by which the target proves itself.
  const replace = kind === "DHCHAPController" && rows.some((row) => row.stored && row.host === host && row.kind === kind);
  void propose(addKey(host, kind, text, replace, () => (made.value = { host, kind, text })));
}

function KeyTable({ rows, onRotate }: { rows: Row[]; onRotate: (row: Row) => void }) {
  return (
    <Table
      caption="Keys"
      rows={rows}
      id={(row) => row.id}
      empty="No host has a key yet. Subsystems that demand a proof refuse every host; others take any host by the name that it gives."
      columns={[
        { title: "Host", by: (row) => row.host, cell: (row) => <code>{row.host}</code> },
        { title: "Key", by: (row) => row.stored?.Id, cell: (row) => <Name row={row} /> },
        { title: "For", cell: (row) => KIND_WORDS[row.kind] },
        { title: "Length", number: true, extra: true, by: (row) => row.oem.Bits, cell: (row) => `${row.oem.Bits ?? "–"} bits` },
        { title: "Since", extra: true, by: (row) => row.oem.Since ?? undefined, cell: (row) => (row.stored ? <Time at={row.oem.Since ?? undefined} /> : "–") },
        { title: "Actions", bare: true, cell: (row) => row.stored && <KeyButtons row={row} stored={row.stored} onRotate={onRotate} /> },
      ]}
    />
  );
}

function Name({ row }: { row: Row }) {
  if (row.place !== undefined) return <span class="wrap">in {row.place}</span>;
  return (
    <>
      <code>{row.id}</code> {row.older && <Badge tone="warn">older</Badge>}
    </>
  );
}

function KeyButtons({ row, stored, onRotate }: { row: Row; stored: StoredKey; onRotate: (row: Row) => void }) {
  return (
    <span class="buttons">
      {!row.older && (
        <Button class="small" aria-label={`Rotate key ${row.id}`} onClick={() => onRotate(row)}>
          Rotate …
        </Button>
      )}
      <Button class="small danger" aria-label={`Remove key ${row.id}`} onClick={() => void propose(removeKey(stored, row.only))}>
        Remove …
      </Button>
    </span>
  );
}

function NewKey({ wanted, onMade }: { wanted: Signal<{ host: string; kind: KeyKind }>; onMade: (host: string, kind: KeyKind, hash: KeyHash) => void }) {
  const hash = useSignal<KeyHash>(1);
  const { host, kind } = wanted.value;
  const hashes = hashesOf(kind);
  const chosen = hashes.some(([one]) => one === hash.value) ? hash.value : 1;
  const known = box.value.hosts.map((one) => one.nqn).filter((nqn) => nqn.startsWith("nqn."));
  const submit = (event: Event) => {
    event.preventDefault();
    onMade(host.trim(), kind, chosen);
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Another key</h2>
      <p class="quiet">The browser makes it. The target stores it, and never tells it again.</p>
      {known.length > 0 && (
        <Select
          label="Host"
          name="key-known"
          value={known.includes(host) ? host : ""}
          options={[["", "another one"], ...known.map((nqn): [string, string] => [nqn, nqn])]}
          onChange={(nqn) => (wanted.value = { host: nqn, kind })}
        />
      )}
      <Field
        label="NQN of the host"
        name="key-host"
        value={host}
        hint="as the host names itself, for example in /etc/nvme/hostnqn"
        onInput={(nqn) => (wanted.value = { host: nqn, kind })}
      />
      <Select label="For" name="key-kind" value={kind} options={KINDS} onChange={(one) => (wanted.value = { host, kind: one as KeyKind })} />
      <Select
        label="Hash and length"
        name="key-hash"
        value={String(chosen)}
        options={hashes.map(([one, text]) => [String(one), text])}
        onChange={(one) => (hash.value = Number(one) as KeyHash)}
      />
      <Button type="submit" class="primary" disabled={!host.trim()}>
        Make …
      </Button>
    </form>
  );
}

const SECURITY: [string, string][] = [
  ["Anyone", "a proof of hosts that have a key"],
  ["Authenticated", "authentication"],
  ["TLS", "TLS"],
  ["AuthenticatedTLS", "TLS and authentication"],
];

function Policies({ rows }: { rows: KeyPolicy[] }) {
  return (
    <Table
      caption="What subsystems demand"
      rows={rows.filter((one) => !one.IsDefault)}
      id={(one) => one["@odata.id"]}
      empty="There is no subsystem."
      columns={[
        { title: "Subsystem", by: (one) => one.Oem?.Ebof?.SubsystemNQN ?? "", cell: (one) => <code>{one.Oem?.Ebof?.SubsystemNQN}</code> },
        {
          title: "Demands",
          by: (one) => one.Oem?.Ebof?.Security,
          cell: (one) => (
            <select
              aria-label={`What ${one.Oem?.Ebof?.SubsystemNQN} demands`}
              value={one.Oem?.Ebof?.Security ?? ""}
              onChange={({ currentTarget }) => {
                const security = currentTarget.value;
                // It shows what is, until it is changed.
                currentTarget.value = one.Oem?.Ebof?.Security ?? "";
                void propose(demand(one, security));
              }}
            >
              {SECURITY.map(([value, text]) => (
                <option value={value}>{text}</option>
              ))}
            </select>
          ),
        },
      ]}
    />
  );
}
