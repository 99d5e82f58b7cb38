//! A drive that is added while the target runs. It is of Administrators: the target opens any file for it.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { CHASSIS } from "../api/addresses";
import { get } from "../api/client";
import type { Resource } from "../api/types";
import { Button, Field, Select } from "../ui/parts";
import { useResource } from "./use";

/** Virtual functions of a new drive, unless another number is asked for. */
const FUNCTIONS = "5";

export function AddDrive() {
  const { value } = useResource("chassis", () => get<Resource>(CHASSIS));
  const name = useSignal("");
  const backing = useSignal("");
  const functions = useSignal(FUNCTIONS);
  const hosts = useSignal("last");
  const target = value?.Actions?.Oem?.["#EbofChassis.AddDrive"]?.target;
  if (!target) return null;
  const number = /^\d+$/.test(functions.value) ? Number(functions.value) : undefined;
  const submit = (event: Event) => {
    event.preventDefault();
    void propose({
      title: `Add drive ${name.value}`,
      method: "POST",
      target,
      body: {
        DriveName: name.value,
        Backing: backing.value,
        Options: { functions: number },
        ...(hosts.value === "any" ? { AllowAnyHost: true } : {}),
      },
      after: () => {
        name.value = "";
        backing.value = "";
      },
    });
  };
  return (
    <form class="panel form" onSubmit={submit}>
      <h2>Add a drive</h2>
      <div class="row">
        <Field label="Name" name="drive-name" value={name.value} hint="d5" onInput={(text) => (name.value = text)} />
        <Field
          label="Backing"
          name="backing"
          value={backing.value}
          hint="a block device, FILE:SIZE or mem:SIZE"
          onInput={(text) => (backing.value = text)}
        />
        <Field
          label="Virtual functions"
          name="functions"
          value={functions.value}
          invalid={number === undefined}
          onInput={(text) => (functions.value = text)}
        />
        <Select
          label="Hosts that may connect"
          value={hosts.value}
          options={[
            ["last", "those of the last drive"],
            ["any", "every host"],
          ]}
          onChange={(text) => (hosts.value = text)}
        />
        <Button type="submit" class="primary" disabled={!name.value || !backing.value || number === undefined}>
          Add …
        </Button>
      </div>
    </form>
  );
}
