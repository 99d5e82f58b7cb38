//! What a drive says about its health, in an order for people.

import { get } from "../api/client";
import type { DriveLogs, DriveMetrics } from "../api/types";
import { type DriveView, inTurns } from "../model/box";
import { bytes, exact } from "../ui/format";

export interface Smart {
  used: number | undefined;
  celsius: number | undefined;
  rows: [string, string][];
  warnings: string[];
  logs: DriveLogs | undefined;
}

/** Properties of NVMeSMART, their names for people and their units. */
const ROWS: [string, string, string][] = [
  ["CompositeTemperatureCelsius", "Temperature", " °C"],
  ["PercentageUsed", "Wear", " %"],
  ["AvailableSparePercent", "Spare", " %"],
  ["AvailableSpareThresholdPercent", "Spare threshold", " %"],
  ["PowerOnHours", "Power on", " h"],
  ["PowerCycles", "Power cycles", ""],
  ["UnsafeShutdowns", "Unsafe shutdowns", ""],
  ["MediaAndDataIntegrityErrors", "Media errors", ""],
  ["NumberOfErrorInformationLogEntries", "Errors logged", ""],
  ["HostReadCommands", "Reads", ""],
  ["HostWriteCommands", "Writes", ""],
  ["ControllerBusyTimeMinutes", "Busy", " min"],
];

const WARNINGS: Record<string, string> = {
  MediaInReadOnly: "The medium is read-only.",
  OverallSubsystemDegraded: "The reliability of the drive is degraded.",
  PMRUnreliable: "The persistent memory region is unreliable.",
  PowerBackupFailed: "The power backup of the volatile memory has failed.",
  SpareCapacityWornOut: "The spare capacity is below its threshold.",
};

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

function sizes(logs: DriveLogs | undefined): [string, string][] {
  if (!logs) return [];
  const rated = logs.RatedWrittenBytes;
  return [
    ["Taken by data", bytes(logs.AllocatedBytes)],
    ["Written", rated ? `${bytes(logs.WrittenBytes)} of ${bytes(rated)}` : bytes(logs.WrittenBytes)],
  ];
}

export function smartOf(metrics: DriveMetrics): Smart {
  const all = metrics.NVMeSMART ?? {};
  const critical = (all.CriticalWarnings ?? {}) as Record<string, unknown>;
  return {
    used: numberOf(all.PercentageUsed),
    celsius: numberOf(all.CompositeTemperatureCelsius),
    rows: [
      ...ROWS.filter(([key]) => numberOf(all[key]) !== undefined).map(([key, name, unit]): [string, string] => [
        name,
        exact(numberOf(all[key])) + unit,
      ]),
      ...sizes(metrics.Oem?.Ebof),
    ],
    warnings: Object.keys(critical)
      .filter((key) => critical[key] === true)
      .map((key) => WARNINGS[key] ?? key),
    logs: metrics.Oem?.Ebof,
  };
}

export async function readSmart(drives: DriveView[]): Promise<[string, Smart][]> {
  const some = drives.filter((drive) => drive.resource?.Metrics);
  return inTurns(some, async (drive) => {
    const uri = drive.resource?.Metrics?.["@odata.id"] ?? "";
    return [drive.uri ?? "", smartOf(await get<DriveMetrics>(uri))];
  });
}
