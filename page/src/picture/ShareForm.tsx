//! The share that a function has of its drive: its weight and its limits.

import { useSignal } from "@preact/signals";
import { share } from "../actions/box";
import { propose } from "../actions/change";
import { mayChange } from "../api/session";
import type { FunctionView } from "../model/box";
import { count, parseBytes, parseCount, rate, short } from "../ui/format";
import { Button, Facts, Field } from "../ui/parts";

/** Empty is no limit. */
function limitOf(text: string, parse: (text: string) => number | undefined): number | null | undefined {
  return text.trim() === "" ? null : parse(text);
}

/** What the form starts from: it begins anew when somebody else changes that. */
export function shareOf(one: FunctionView): unknown[] {
  return [one.weight, one.iopsLimit, one.bytesLimit, one.minimumIops];
}

export function ShareForm({ one }: { one: FunctionView }) {
  const text = (value: number | null | undefined) => (value === null || value === undefined ? "" : short(value));
  const weight = useSignal(String(one.weight ?? 1));
  const limit = useSignal(text(one.iopsLimit));
  const bandwidth = useSignal(text(one.bytesLimit));
  const least = useSignal(text(one.minimumIops));
  if (!mayChange()) {
    return (
      <Facts
        rows={[
          ["Weight", one.weight],
          ["IOPS limit", one.iopsLimit ? count(one.iopsLimit) : "none"],
          ["Bandwidth limit", one.bytesLimit ? rate(one.bytesLimit) : "none"],
          ["Minimum IOPS", one.minimumIops ? count(one.minimumIops) : "none"],
        ]}
      />
    );
  }
  const values = {
    Weight: Number(weight.value),
    IOPSLimit: limitOf(limit.value, parseCount),
    BytesPerSecondLimit: limitOf(bandwidth.value, parseBytes),
    MinimumIOPS: limitOf(least.value, parseCount),
  };
  const wrong = (value: unknown) => value === undefined || Number.isNaN(value);
  const invalid = Object.values(values).some(wrong);
  const submit = (event: Event) => {
    event.preventDefault();
    const { Weight, IOPSLimit, BytesPerSecondLimit, MinimumIOPS } = values;
    if (invalid || IOPSLimit === undefined || BytesPerSecondLimit === undefined || MinimumIOPS === undefined) return;
    void propose(share(one, { Weight, IOPSLimit, BytesPerSecondLimit, MinimumIOPS }));
  };
  return (
    <form class="share" onSubmit={submit}>
      <h3>Share of the drive</h3>
      <div class="grid-2">
        <Field label="Weight" value={weight.value} onInput={(value) => (weight.value = value)} invalid={wrong(values.Weight)} />
        <Field label="IOPS limit" value={limit.value} onInput={(value) => (limit.value = value)} invalid={wrong(values.IOPSLimit)} />
        <Field label="Bytes/s limit" value={bandwidth.value} onInput={(value) => (bandwidth.value = value)} invalid={wrong(values.BytesPerSecondLimit)} />
        <Field label="Minimum IOPS" value={least.value} onInput={(value) => (least.value = value)} invalid={wrong(values.MinimumIOPS)} />
      </div>
      <p class="quiet">Weights are relative, 1 to 1000. Empty is no limit; 50k and 1G are understood.</p>
      <Button type="submit" disabled={invalid}>
        Change …
      </Button>
    </form>
  );
}
