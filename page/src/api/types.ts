//! The parts of Redfish resources that the page reads. Everything may be absent: a service may have
//! less, and the page then shows less.

export interface Ref {
  "@odata.id": string;
}

export interface Resource extends Ref {
  "@odata.type"?: string;
  "@odata.etag"?: string;
  Id?: string;
  Name?: string;
  Description?: string;
  Status?: Status;
  Actions?: Actions;
}

export interface Status {
  State?: string | null;
  Health?: string | null;
  Conditions?: { Message?: string; Severity?: string; Resolution?: string }[];
}

/** An action's address, and what its parameters may be (`NAME@Redfish.AllowableValues`). */
export type Action = { target?: string } & Record<string, unknown>;

export type Actions = Record<string, Action | undefined> & { Oem?: Record<string, Action | undefined> };

export interface Collection<T> extends Resource {
  Members?: T[];
  "Members@odata.count"?: number;
  "Members@odata.nextLink"?: string;
}

export interface Message {
  MessageId?: string;
  Message?: string;
  MessageArgs?: string[];
  MessageSeverity?: string;
  Severity?: string;
  Resolution?: string;
  RelatedProperties?: string[];
}

export interface ErrorBody {
  error?: { code?: string; message?: string; "@Message.ExtendedInfo"?: Message[] };
  "@Message.ExtendedInfo"?: Message[];
}

export interface ConnectedHost {
  NQN?: string;
  Address?: string;
  ControllerId?: number;
  Port?: string;
  IOQueues?: number;
  ConnectedSince?: string;
}

export interface FunctionOem {
  Object?: string;
  State?: string;
  Port?: string | null;
  /** Of a primary controller, whose ports are the configuration's. */
  Ports?: string[];
  QueuePairs?: number;
  InterruptVectors?: number;
  Weight?: number;
  IOPSLimit?: number | null;
  BytesPerSecondLimit?: number | null;
  MinimumIOPS?: number | null;
  NQN?: string;
  Hosts?: ConnectedHost[];
  Task?: unknown;
}

export interface Controller extends Resource {
  NVMeControllerProperties?: { ControllerType?: string };
  Links?: { AttachedVolumes?: Ref[]; Endpoints?: Ref[]; PCIeFunctions?: Ref[] };
  Oem?: { Ebof?: FunctionOem };
}

export interface Volume extends Resource {
  CapacityBytes?: number;
  BlockSizeBytes?: number;
  Identifiers?: Identifier[];
  Operations?: Operation[];
  NVMeNamespaceProperties?: { NamespaceId?: string; IsShareable?: boolean; FormattedLBASize?: string };
  Links?: { Controllers?: Ref[]; Drives?: Ref[] };
  Oem?: { Ebof?: VolumeOem };
}

export interface VolumeOem {
  Object?: string;
  WriteProtected?: boolean;
  /** NQNs of hosts of the drive's own subsystem; `*` is every one. */
  AttachedHosts?: string[];
  ClaimedBytes?: number;
  KeepsChecksums?: boolean;
  Owner?: string | null;
}

export interface Operation {
  Operation?: string;
  PercentageComplete?: number;
}

export interface Identifier {
  DurableName?: string | null;
  DurableNameFormat?: string | null;
}

export interface Storage extends Resource {
  Identifiers?: Identifier[];
  Controllers?: Ref;
  Volumes?: Ref;
  Drives?: Ref[];
}

export interface Drive extends Resource {
  CapacityBytes?: number;
  MediaType?: string;
  Protocol?: string;
  SerialNumber?: string;
  Model?: string;
  FirmwareVersion?: string;
  PredictedMediaLifeLeftPercent?: number;
  Operations?: Operation[];
  Links?: { Storage?: Ref; Volumes?: Ref[] };
  Metrics?: Ref;
  Oem?: { Ebof?: DriveOem };
}

export interface DriveOem {
  Object?: string;
  UnallocatedBytes?: number;
  Backing?: string;
  IsAdded?: boolean;
  IsReadOnly?: boolean;
  Formats?: { BlockSizeBytes?: number; MetadataBytes?: number }[];
  SelfTestPercent?: number | null;
  Sanitize?: { State?: string; Percent?: number | null };
  Firmware?: { NextSlot?: number | null };
}

export interface DriveMetrics extends Resource {
  NVMeSMART?: Record<string, unknown>;
  Oem?: { Ebof?: DriveLogs };
}

export interface DriveLogs {
  AllocatedBytes?: number;
  WrittenBytes?: number;
  RatedWrittenBytes?: number | null;
  WarningCelsius?: number;
  SelfTests?: { Kind?: string | null; Passed?: boolean; Message?: string; PowerOnHours?: number }[];
  Errors?: { Number?: number; Message?: string; NamespaceId?: number | null; LBA?: number | null }[];
  EventsTotal?: number;
  Events?: { EventType?: number; Message?: string; Timestamp?: string }[];
}

export interface Port extends Resource {
  PortProtocol?: string;
  LinkStatus?: string;
  CurrentSpeedGbps?: number;
  Metrics?: Ref;
  Oem?: { Ebof?: { Object?: string; Listen?: string; Transport?: string; IsDiscoveryOnly?: boolean; Zone?: Ref } };
}

export interface Zone extends Resource {
  ZoneType?: string;
  Links?: { Endpoints?: Ref[] };
  Oem?: { Ebof?: { Object?: string } };
}

export interface Endpoint extends Resource {
  Identifiers?: Identifier[];
  ConnectedEntities?: { EntityRole?: string; EntityLink?: Ref }[];
  Oem?: { Ebof?: { Object?: string; Connected?: boolean } };
}

/** Who may connect to a subsystem. */
export interface Connection extends Resource {
  VolumeInfo?: { Volume: Ref }[];
  Links?: { InitiatorEndpoints?: Ref[]; TargetEndpoints?: Ref[] };
  Oem?: { Ebof?: { AnyHost?: boolean; Connected?: boolean } };
}

export interface Task extends Resource {
  TaskState?: string;
  TaskStatus?: string;
  PercentComplete?: number;
  StartTime?: string;
  EndTime?: string;
  TaskMonitor?: string;
  Messages?: Message[];
  Payload?: { HttpOperation?: string; TargetUri?: string; JsonBody?: string };
  Oem?: { Ebof?: { Phase?: string; Detail?: string | null; Remark?: string | null } };
}

export interface LogEntry extends Resource {
  Created?: string;
  Message?: string;
  MessageId?: string;
  Severity?: string;
  Resolution?: string;
  EntryType?: string;
  Links?: { OriginOfCondition?: Ref };
  Oem?: { Ebof?: { Object?: string; Who?: string | null } };
}

export interface EventRecord {
  EventId?: string;
  EventTimestamp?: string;
  MessageId?: string;
  Message?: string;
  MessageSeverity?: string;
  Severity?: string;
  Resolution?: string;
  OriginOfCondition?: Ref;
}

export interface MetricValue {
  MetricId?: string;
  MetricProperty?: string;
  MetricValue?: string | null;
  Timestamp?: string;
}

export interface MetricReport extends Resource {
  MetricValues?: MetricValue[];
  Timestamp?: string;
}

export interface PlanAnswer {
  /** Of the box as text, of a configuration with what stands in the way. */
  Changes?: (string | { Text?: string; Obstacle?: string | null })[];
  Disturbed?: { HostNQN?: string; SubsystemNQN?: string; ControllerId?: number; Port?: string; Why?: string }[];
  DisturbedLeftOut?: number;
  DestroysData?: boolean;
  Refused?: Message[];
  /** Of what was planned of the box: it goes with the request. */
  Revision?: string;
  /** The same of a configuration. */
  PlanRevision?: string;
}
