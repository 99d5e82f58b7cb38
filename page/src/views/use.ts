//! Reads resources for a view, again when an event comes that concerns it.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { onEvent, onRefresh } from "../model/store";
import { textOf } from "../ui/parts";

const GATHER_MS = 300;

export interface Read<T> {
  value: T | undefined;
  problem: string;
  again: () => void;
}

/** `key` names what is read: another key is another reading. It is read again with all the rest, as
 * after each change, and when an event comes that concerns it. */
export function useResource<T>(key: string, read: () => Promise<T>, concerns: (origin: string) => boolean = () => false): Read<T> {
  const value = useSignal<T | undefined>(undefined);
  const problem = useSignal("");
  const now = useRef<() => Promise<void>>(async () => {});
  useEffect(() => {
    // What is read last is what is shown.
    let latest = 0;
    const again = async () => {
      const turn = ++latest;
      const shows = () => turn === latest;
      try {
        const fresh = await read();
        if (!shows()) return;
        value.value = fresh;
        problem.value = "";
      } catch (error) {
        if (shows()) problem.value = textOf(error);
      }
    };
    now.current = again;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stopEvents = onEvent((record) => {
      if (!concerns(record.OriginOfCondition?.["@odata.id"] ?? "")) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        void again();
      }, GATHER_MS);
    });
    const stopRefresh = onRefresh(again);
    void again();
    return () => {
      latest = Infinity;
      clearTimeout(timer);
      stopEvents();
      stopRefresh();
    };
  }, [key]);
  return { value: value.value, problem: problem.value, again: () => void now.current() };
}
