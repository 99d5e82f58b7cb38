//! What screen readers are told, without moving the focus.

import { signal } from "@preact/signals";

const said = signal({ text: "", odd: false });

/** Says a sentence; the same one is said again. */
export function announce(text: string): void {
  said.value = { text, odd: !said.value.odd };
}

/** Two regions in turns, so that a repeated sentence is a change. */
export function LiveRegion() {
  const { text, odd } = said.value;
  return (
    <div class="unseen" aria-live="polite" data-test="live">
      <p>{odd ? text : ""}</p>
      <p>{odd ? "" : text}</p>
    </div>
  );
}
