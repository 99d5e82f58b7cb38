//! A modal dialog on the browser's own element, which keeps the focus within and gives it back.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { giveBack, here } from "./focus";

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  // With the element itself, not after the next frame: the focus would be taken from what the user
  // has gone to by then.
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = here();
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      dialog?.close();
      // What had it may have been drawn anew meanwhile, or be gone.
      giveBack(before);
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={props.wide ? "wide" : ""}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
    >
      <header>
        <h2 id={id}>{props.title}</h2>
        <button type="button" class="plain-button" aria-label="close" onClick={props.onClose}>
          ✕
        </button>
      </header>
      <div class="dialog-body">{props.children}</div>
    </dialog>
  );
}
