//! Where the page is: the address behind `#`, as segments.

import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);
addEventListener("hashchange", () => (hash.value = location.hash));

/** `#/drives/d0` is `["drives", "d0"]`. */
export const route = computed<string[]>(() => {
  const path = hash.value.replace(/^#\/?/, "");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return parts.length ? parts : ["overview"];
});

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function href(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(...parts: string[]): void {
  location.hash = href(...parts);
}
