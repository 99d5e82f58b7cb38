//! The manager's resource, as far as the page reads it.

import type { Ref, Resource } from "../api/types";

export interface Manager extends Resource {
  FirmwareVersion?: string;
  DateTime?: string;
  /** What is to be served and cannot be had is among the conditions. */
  Status?: { Health?: string; Conditions?: { Message?: string }[] };
  Oem?: { Ebof?: { Configuration?: Ref } };
}
