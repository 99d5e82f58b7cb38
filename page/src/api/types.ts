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

export type Actions = Record<string, { target?: string } | undefined> & {
  Oem?: Record<string, { target?: string } | undefined>;
};

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
  WriteProtected?: boolean;
  Identifiers?: Identifier[];
  NVMeNamespaceProperties?: { NamespaceId?: string; IsShareable?: boolean; FormattedLBASize?: string };
  Links?: { Controllers?: Ref[]; Drives?: Ref[] };
  Oem?: { Ebof?: { Object?: string; Hosts?: string[] } };
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
  Revision?: string;
  PredictedMediaLifeLeftPercent?: number;
  Links?: { Storage?: Ref | Ref[]; Volumes?: Ref[] };
  Metrics?: Ref;
  Oem?: { Ebof?: { Object?: string; UnallocatedBytes?: number; Backing?: string; Added?: boolean } };
}

export interface DriveMetrics extends Resource {
  NVMeSMART?: Record<string, unknown>;
  BadBlockCount?: number;
  PowerOnHours?: number;
}

export interface Port extends Resource {
  PortProtocol?: string;
  LinkStatus?: string;
  CurrentSpeedGbps?: number;
  Metrics?: Ref;
  Oem?: { Ebof?: { Object?: string; Listen?: string; Kind?: string; Connections?: number; DiscoveryOnly?: boolean } };
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

export interface Task extends Resource {
  TaskState?: string;
  TaskStatus?: string;
  PercentComplete?: number;
  StartTime?: string;
  EndTime?: string;
  TaskMonitor?: string;
  Messages?: Message[];
  Payload?: { HttpOperation?: string; TargetUri?: string; JsonBody?: string };
  Oem?: { Ebof?: { Phase?: string; Detail?: string | null } };
}

export interface LogEntry extends Resource {
  Created?: string;
  Message?: string;
  MessageId?: string;
  Severity?: string;
  Resolution?: string;
  EntryType?: string;
  Links?: { OriginOfCondition?: Ref };
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
  Changes?: (string | { Change?: string; Message?: string })[];
  Disturbed?: { HostNQN?: string; Address?: string; Why?: string; Message?: string }[];
  Refused?: (string | Message)[];
}
