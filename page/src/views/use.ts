//! Reads resources for a view, again when an event comes that concerns it.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { onEvent } from "../model/store";
import { textOf } from "../ui/parts";

const GATHER_MS = 300;

export interface Read<T> {
  value: T | undefined;
  problem: string;
  again: () => void;
}

/** `key` names what is read: another key is another reading. */
export function useResource<T>(key: string, read: () => Promise<T>, concerns: (origin: string) => boolean = () => false): Read<T> {
  const value = useSignal<T | undefined>(undefined);
  const problem = useSignal("");
  const turn = useSignal(0);
  useEffect(() => {
    let gone = false;
    read().then(
      (fresh) => {
        if (gone) return;
        value.value = fresh;
        problem.value = "";
      },
      (error: unknown) => {
        if (!gone) problem.value = textOf(error);
      },
    );
    return () => {
      gone = true;
    };
  }, [key, turn.value]);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = onEvent((record) => {
      if (!concerns(record.OriginOfCondition?.["@odata.id"] ?? "")) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        turn.value++;
      }, GATHER_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [key]);
  return { value: value.value, problem: problem.value, again: () => turn.value++ };
}
