//! What can be done with a whole drive: self-tests, erasing, resetting, removing.

import { useSignal } from "@preact/signals";
import { propose } from "../actions/change";
import { mayChange } from "../api/session";
import type { Action } from "../api/types";
import type { DriveView } from "../model/box";
import { Button, Select } from "../ui/parts";

function allowed(action: Action | undefined, parameter: string): string[] {
  const values = action?.[`${parameter}@Redfish.AllowableValues`];
  return Array.isArray(values) ? values.map(String) : [];
}

const ERASURES: Record<string, string> = {
  CryptographicErase: "by changing the keys",
  BlockErase: "by erasing the blocks",
  Overwrite: "by overwriting the blocks",
};

export function DriveActions({ drive }: { drive: DriveView }) {
  const actions = drive.resource?.Actions;
  if (!mayChange() || !actions) return null;
  const test = actions.Oem?.["#EbofDrive.SelfTest"];
  const remove = actions.Oem?.["#EbofDrive.Remove"];
  return (
    <section class="panel">
      <h2>Maintenance</h2>
      {test?.target && <SelfTest drive={drive} target={test.target} kinds={allowed(test, "Kind")} />}
      <h3>Destroy data</h3>
      <SecureErase drive={drive} action={actions["#Drive.SecureErase"]} />
      <h3>Interrupt</h3>
      <p class="buttons">
        {drive.reset && (
          <Button
            class="danger"
            onClick={() =>
              void propose({
                title: `Reset drive ${drive.name}`,
                method: "POST",
                target: drive.reset ?? "",
                body: {},
                confirm: drive.name,
                warning: "All functions of the drive go offline, and lose their resources.",
              })
            }
          >
            Reset …
          </Button>
        )}
        {remove?.target && (
          <Button
            class="danger"
            onClick={() =>
              void propose({
                title: `Remove drive ${drive.name}`,
                method: "POST",
                target: remove.target ?? "",
                body: {},
                confirm: drive.name,
                warning: "Its hosts lose it. What is on its backing stays.",
              })
            }
          >
            Remove …
          </Button>
        )}
      </p>
    </section>
  );
}

function SelfTest({ drive, target, kinds }: { drive: DriveView; target: string; kinds: string[] }) {
  const percent = drive.resource?.Oem?.Ebof?.SelfTestPercent;
  const running = percent !== null && percent !== undefined;
  const shown = kinds.filter((kind) => (kind === "Abort") === running);
  return (
    <>
      {running && <p class="quiet">A self-test runs: {percent} %.</p>}
      <p class="buttons">
        {shown.map((kind) => (
          <Button
            onClick={() =>
              void propose({
                title: kind === "Abort" ? `Abort the self-test of ${drive.name}` : `${kind} self-test of ${drive.name}`,
                method: "POST",
                target,
                body: { Kind: kind },
              })
            }
          >
            {kind === "Abort" ? "Abort the self-test …" : `${kind} self-test …`}
          </Button>
        ))}
      </p>
    </>
  );
}

function SecureErase({ drive, action }: { drive: DriveView; action: Action | undefined }) {
  const chosen = useSignal("");
  const kinds = allowed(action, "SanitizationType");
  const target = action?.target;
  if (!target) return null;
  const kind = kinds.includes(chosen.value) ? chosen.value : kinds[0];
  const submit = (event: Event) => {
    event.preventDefault();
    void propose({
      title: `Sanitize drive ${drive.name}`,
      method: "POST",
      target,
      body: kind ? { SanitizationType: kind } : {},
      confirm: drive.name,
      warning: `All data of all namespaces of drive ${drive.name} are lost, for good.`,
    });
  };
  return (
    <form class="choose" onSubmit={submit}>
      {kinds.length > 0 && (
        <Select
          label="Sanitize"
          name="sanitize"
          value={kind ?? ""}
          options={kinds.map((one) => [one, ERASURES[one] ?? one])}
          onChange={(value) => (chosen.value = value)}
        />
      )}
      <Button type="submit" class="danger">
        Sanitize …
      </Button>
    </form>
  );
}
