//! The manager's resource, as far as the page reads it.

import type { Ref, Resource } from "../api/types";

export interface Manager extends Resource {
  FirmwareVersion?: string;
  DateTime?: string;
  Oem?: { Ebof?: { Configuration?: Ref } };
}
