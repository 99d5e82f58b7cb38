//! The firmware slots of a drive, and how an image gets into one.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { ROOT, get, ids, members } from "../api/client";
import { mayChange } from "../api/session";
import type { Ref, Resource } from "../api/types";
import type { DriveView } from "../model/box";
import { Button, Table } from "../ui/parts";
import { useResource } from "./use";

interface Slot extends Resource {
  Version?: string | null;
  Updateable?: boolean;
  /** It runs. */
  Active?: boolean;
  /** It runs after the next reset. */
  Staged?: boolean;
  RelatedItem?: Ref[];
}

interface UpdateService extends Resource {
  MultipartHttpPushUri?: string;
}

function stateOf(slot: Slot): string {
  if (slot.Active) return "runs";
  if (slot.Staged) return "runs after the next reset";
  return slot.Version ? "stored" : "empty";
}

export function Firmware({ drive }: { drive: DriveView }) {
  const { value, problem } = useResource(
    drive.storage,
    async () => {
      const [slots, service] = await Promise.all([
        members<Slot>(`${ROOT}/UpdateService/FirmwareInventory`),
        get<UpdateService>(`${ROOT}/UpdateService`).catch(() => undefined),
      ]);
      const activate = service?.Actions?.["#UpdateService.Activate"]?.target;
      return { slots, push: service?.MultipartHttpPushUri, activate };
    },
    (origin) => origin.includes("/UpdateService") || origin === drive.uri || origin.startsWith(drive.storage),
  );
  const id = drive.storage.split("/").at(-1);
  const own = (value?.slots ?? []).filter(
    (slot) => ids(slot.RelatedItem).some((uri) => uri === drive.uri || uri === drive.storage) || slot.Id?.startsWith(`${id}-slot`),
  );
  return (
    <section class="panel">
      <h2>Firmware</h2>
      {problem && <p class="bad">{problem}</p>}
      <Table
        caption={`Firmware slots of ${drive.name}`}
        rows={own}
        id={(slot) => slot.Id ?? ""}
        empty="The drive has no firmware slots."
        columns={[
          { title: "Slot", cell: (slot) => slot.Id?.match(/slot(\d+)$/)?.[1] ?? slot.Name },
          { title: "Version", cell: (slot) => slot.Version || "–" },
          { title: "State", cell: stateOf },
          { title: "Actions", bare: true, cell: (slot) => <Activate drive={drive} slot={slot} target={value?.activate} /> },
        ]}
      />
      {value?.push && mayChange() && <Upload drive={drive} push={value.push} slots={own} />}
    </section>
  );
}

function Activate({ drive, slot, target }: { drive: DriveView; slot: Slot; target: string | undefined }) {
  if (!target || !slot.Version || slot.Active || !mayChange()) return null;
  return (
    <Button
      class="small"
      aria-label={`Activate ${slot.Name}`}
      onClick={() =>
        void propose({
          title: `Run firmware ${slot.Version} on drive ${drive.name}`,
          method: "POST",
          target,
          body: { Targets: [{ "@odata.id": slot["@odata.id"] }] },
          unplanned: true,
        })
      }
    >
      Activate …
    </Button>
  );
}

function Upload({ drive, push, slots }: { drive: DriveView; push: string; slots: Slot[] }) {
  const file = useSignal<File | null>(null);
  const slot = useSignal("");
  const when = useSignal("Immediate");
  const writable = slots.filter((one) => one.Updateable !== false);
  const submit = (event: Event) => {
    event.preventDefault();
    if (!file.value) return;
    const target = slot.value || writable[0]?.["@odata.id"] || drive.uri;
    const form = new FormData();
    form.append("UpdateParameters", new Blob([JSON.stringify({ Targets: [target], "@Redfish.OperationApplyTime": when.value })], { type: "application/json" }));
    form.append("UpdateFile", file.value, file.value.name);
    void propose({
      title: `Firmware ${file.value.name} for drive ${drive.name}`,
      method: "POST",
      target: push,
      body: form,
      unplanned: true,
    });
  };
  return (
    <form class="choose" onSubmit={submit}>
      <label>
        <span>Image</span>
        <input type="file" onChange={(event) => (file.value = event.currentTarget.files?.[0] ?? null)} />
      </label>
      {writable.length > 1 && (
        <label>
          <span>Slot</span>
          <select value={slot.value} onChange={(event) => (slot.value = event.currentTarget.value)}>
            {writable.map((one) => (
              <option value={one["@odata.id"]}>{one.Id?.match(/slot(\d+)$/)?.[1] ?? one.Name}</option>
            ))}
          </select>
        </label>
      )}
      <label>
        <span>Runs</span>
        <select value={when.value} onChange={(event) => (when.value = event.currentTarget.value)}>
          <option value="Immediate">at once</option>
          <option value="OnReset">after the next reset</option>
        </select>
      </label>
      <Button type="submit" disabled={!file.value}>
        Upload …
      </Button>
    </form>
  );
}
