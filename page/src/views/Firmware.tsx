//! The firmware slots of a drive, and how an image gets into one.

import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import { propose } from "../actions/change";
import { ROOT } from "../api/addresses";
import { Upload } from "../api/calls";
import { get, ids, members } from "../api/client";
import { mayChange } from "../api/session";
import type { Ref, Resource } from "../api/types";
import type { DriveView } from "../model/box";
import { Button, Select, Table } from "../ui/parts";
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

function numberOf(slot: Slot): string {
  return slot.Id?.match(/slot(\d+)$/)?.[1] ?? slot.Name ?? "";
}

function stateOf(slot: Slot): string {
  if (slot.Active) return "runs";
  if (slot.Staged) return "runs after the next reset of a controller";
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
          { title: "Slot", cell: numberOf },
          { title: "Version", cell: (slot) => slot.Version || "–" },
          { title: "State", cell: stateOf },
          { title: "Actions", bare: true, cell: (slot) => <Activate drive={drive} slot={slot} target={value?.activate} /> },
        ]}
      />
      {value?.push && mayChange() && <UploadForm drive={drive} push={value.push} slots={own} />}
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

/** The slot that an image goes to if nobody chooses: an empty one, else one that does not run. */
function freeSlot(slots: Slot[]): Slot | undefined {
  return slots.find((one) => !one.Version) ?? slots.find((one) => !one.Active) ?? slots[0];
}

function UploadForm({ drive, push, slots }: { drive: DriveView; push: string; slots: Slot[] }) {
  const id = useId();
  const file = useSignal<File | null>(null);
  const slot = useSignal("");
  const when = useSignal("Immediate");
  const writable = slots.filter((one) => one.Updateable !== false);
  const chosen = writable.find((one) => one["@odata.id"] === slot.value) ?? freeSlot(writable);
  const submit = (event: Event) => {
    event.preventDefault();
    if (!file.value) return;
    const run = when.value === "Stage" ? { Stage: true } : { "@Redfish.OperationApplyTime": when.value };
    void propose({
      title: `Firmware ${file.value.name} for drive ${drive.name}`,
      method: "POST",
      target: push,
      body: new Upload({ Targets: [chosen?.["@odata.id"] ?? drive.uri], ...run }, file.value),
      unplanned: true,
    });
  };
  return (
    <form class="choose" onSubmit={submit}>
      <p class="field whole">
        <label for={id}>Image</label>
        <input id={id} type="file" name="image" onChange={(event) => (file.value = event.currentTarget.files?.[0] ?? null)} />
      </p>
      {writable.length > 1 && (
        <Select
          label="Slot"
          name="slot"
          value={chosen?.["@odata.id"] ?? ""}
          options={writable.map((one) => [one["@odata.id"], numberOf(one)])}
          onChange={(value) => (slot.value = value)}
        />
      )}
      <Select
        label="Runs"
        name="when"
        value={when.value}
        options={[
          ["Immediate", "at once"],
          ["OnReset", "after the next reset of a controller"],
          ["Stage", "when it is activated"],
        ]}
        onChange={(value) => (when.value = value)}
      />
      <Button type="submit" disabled={!file.value}>
        Upload …
      </Button>
    </form>
  );
}
