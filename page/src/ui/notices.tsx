//! What has happened meanwhile, in a corner, for a while: the ends of tasks.

import { signal } from "@preact/signals";
import { announce } from "./live";

interface Notice {
  text: string;
  good: boolean;
}

const SHOWN_MS = 10_000;
/** What is older than so many others goes. */
const NOTICES_MAX = 4;

const notices = signal<readonly Notice[]>([]);

/** Shows a sentence, and says it to screen readers. What went wrong stays until it is dismissed. */
export function notify(notice: Notice): void {
  notices.value = [...notices.value, notice].slice(-NOTICES_MAX);
  announce(notice.text);
  if (notice.good) setTimeout(() => dismiss(notice), SHOWN_MS);
}

function dismiss(notice: Notice): void {
  notices.value = notices.value.filter((one) => one !== notice);
}

export function Notices() {
  if (!notices.value.length) return null;
  return (
    <ul class="notices" data-test="notices">
      {notices.value.map((notice) => (
        <li class={notice.good ? "good" : "bad"}>
          <span>{notice.text}</span>
          <button type="button" class="small" aria-label={`Dismiss: ${notice.text}`} onClick={() => dismiss(notice)}>
            ×
          </button>
        </li>
      ))}
    </ul>
  );
}
