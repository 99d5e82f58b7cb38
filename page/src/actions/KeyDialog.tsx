//! A key that was added, this once: behind the dialog of the change, in whatever view that is.

import { useSignal } from "@preact/signals";
import { announce } from "../ui/live";
import { Dialog } from "../ui/dialog";
import { Button } from "../ui/parts";
import { pending } from "./change";
import { type MadeKey, made } from "./keys";

export function KeyDialog() {
  const shown = made.value;
  if (!shown || pending.value) return null;
  return <Shown one={shown} onClose={() => (made.value = null)} />;
}

function Shown({ one, onClose }: { one: MadeKey; onClose: () => void }) {
  const copied = useSignal(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(one.text);
      copied.value = true;
      announce("Copied.");
    } catch {
      announce("The browser does not allow copying; select the text.");
    }
  };
  return (
    <Dialog title="The key, this once" onClose={onClose}>
      <p>
        Give it to <code>{one.host}</code> now: neither the page nor the target can show it again. Who has it is this host.
      </p>
      <div class="call">
        <code tabIndex={0} role="textbox" aria-readonly="true" aria-label="the key" data-test="key">
          {one.text}
        </code>
        <Button class="small" onClick={() => void copy()}>
          {copied.value ? "copied" : "copy"}
        </Button>
      </div>
      <p class="quiet">{one.kind === "DHCHAPController" ? "The host checks it when it connects again." : "Older keys stay good until they are removed: remove them when the host connects with this one."}</p>
      <footer>
        <Button class="primary" onClick={onClose}>
          I have it
        </Button>
      </footer>
    </Dialog>
  );
}
