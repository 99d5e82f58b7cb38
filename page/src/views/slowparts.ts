//! The parts of the time of slow commands, without elements.

export interface SlowCommand {
  HostNQN?: string;
  /** `d3/vf2`. */
  Object?: string;
  Port?: string;
  Queue?: number;
  NSID?: number;
  Command?: string;
  LBA?: number | null;
  DataBytes?: number;
  CompletionStatus?: string;
  TotalMicroseconds?: number;
  QueueMicroseconds?: number;
  BufferMicroseconds?: number;
  NetworkMicroseconds?: number;
  DeviceMicroseconds?: number;
}

export interface Part {
  name: (typeof PARTS)[number]["name"];
  us: number;
}

/** In the order in which a command passes them. */
export const PARTS = [
  { name: "buffer", property: "BufferMicroseconds", meaning: "others had all buffers" },
  { name: "network", property: "NetworkMicroseconds", meaning: "its data came late" },
  { name: "queue", property: "QueueMicroseconds", meaning: "it waited for its share or its turn" },
  { name: "device", property: "DeviceMicroseconds", meaning: "the device had it" },
] as const;

/** Those that took any time. */
export function partsOf(command: SlowCommand | undefined): Part[] {
  return PARTS.map(({ name, property }) => ({ name, us: command?.[property] ?? 0 })).filter((one) => one.us > 0);
}

/** Whether a command ended otherwise than it should. */
export function ended(status: string | undefined): boolean {
  return status !== undefined && !/^success/i.test(status);
}

export interface Sum {
  object: string;
  count: number;
  totalUs: number;
  longestUs: number;
  parts: Part[];
  /** For the longest one. */
  advice: string;
}

/** Commands by function, that first which has lost the most time. */
export function sums(commands: (SlowCommand & { advice: string })[]): Sum[] {
  const objects = [...new Set(commands.map((one) => one.Object ?? ""))];
  const all = objects.map((object): Sum => {
    const list = commands.filter((one) => (one.Object ?? "") === object);
    const took = list.map((one) => one.TotalMicroseconds ?? 0);
    const longestUs = Math.max(...took);
    const parts = PARTS.map(({ name, property }) => ({ name, us: list.reduce((sum, one) => sum + (one[property] ?? 0), 0) }));
    return {
      object,
      count: list.length,
      totalUs: took.reduce((sum, us) => sum + us, 0),
      longestUs,
      parts: parts.filter((one) => one.us > 0),
      advice: list[took.indexOf(longestUs)]?.advice ?? "",
    };
  });
  return all.sort((a, b) => b.totalUs - a.totalUs);
}
