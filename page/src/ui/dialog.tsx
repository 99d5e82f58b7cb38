//! A modal dialog on the browser's own element, which keeps the focus within and gives it back.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  // With the element itself, not after the next frame: the focus would be taken from what the user
  // has gone to by then.
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement as HTMLElement | null;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      dialog?.close();
      // The element may have been drawn anew meanwhile.
      const key = before?.dataset.focus;
      const again = key ? document.querySelector<HTMLElement>(`[data-focus="${CSS.escape(key)}"]`) : before;
      again?.focus();
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
