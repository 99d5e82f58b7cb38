//! Light or dark: what the system prefers, unless the user has chosen.

import { computed, effect, signal } from "@preact/signals";

export type Choice = "auto" | "light" | "dark";

const KEY = "ebof-scheme";
const query = matchMedia("(prefers-color-scheme: dark)");
const preferred = signal(query.matches);
query.addEventListener("change", () => (preferred.value = query.matches));

function stored(): Choice {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "auto";
}

export const choice = signal<Choice>(stored());
export const scheme = computed(() => (choice.value === "auto" ? (preferred.value ? "dark" : "light") : choice.value));

effect(() => {
  document.documentElement.dataset.scheme = scheme.value;
});

export function choose(value: Choice): void {
  choice.value = value;
  if (value === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, value);
}
