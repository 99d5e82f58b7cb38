//! A body that is accepted, of each method of each address.

use super::{Endpoint, matches};

/// Header fields of a request.
pub(super) type Headers = Vec<(&'static str, &'static [u8])>;

/// A request that is accepted.
pub(super) struct Known {
    pub(super) method: &'static str,
    /// Below the root. `*` is the last resource of that kind.
    path: &'static str,
    pub(super) body: &'static str,
}

const fn known(method: &'static str, path: &'static str, body: &'static str) -> Known {
    Known { method, path, body }
}

/// What stands between the parts of an upload.
const BOUNDARY: &str = "xyz";

impl Known {
    fn pattern(&self) -> String {
        format!("/redfish/v1/{}", self.path.replace('*', "{}"))
    }

    /// Whether it is for addresses of a pattern.
    pub(super) fn is_for(&self, pattern: &str) -> bool {
        matches(pattern, &self.pattern())
    }

    /// The path, headers and body, for a box whose configuration has this revision.
    pub(super) fn request(&self, all: &[Endpoint], revision: &str) -> (String, Headers, Vec<u8>) {
        let pattern = self.pattern();
        let is_it = |one: &&Endpoint| one.method == self.method && matches(&pattern, &one.path);
        let path = all.iter().rfind(is_it).unwrap_or_else(|| panic!("{} {pattern} is nowhere", self.method));
        let headers = vec![("content-type", self.kind())];
        (path.path.clone(), headers, self.wrapped(self.body.replace("REVISION", revision).as_bytes()))
    }

    pub(super) fn is_upload(&self) -> bool {
        self.path.ends_with("/upload")
    }

    fn kind(&self) -> &'static [u8] {
        if self.is_upload() { b"multipart/form-data; boundary=xyz" } else { b"application/json" }
    }

    /// JSON as the body that has it.
    pub(super) fn wrapped(&self, json: &[u8]) -> Vec<u8> {
        if !self.is_upload() {
            return json.to_vec();
        }
        let part = |name: &str, content: &[u8]| {
            let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            [head.as_bytes(), content, b"\r\n"].concat()
        };
        let end = format!("--{BOUNDARY}--\r\n");
        [part("UpdateParameters", json), part("UpdateFile", b"EBOF"), end.into_bytes()].concat()
    }
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[
    known(
        "POST",
        "SessionService/Sessions",
        r#"{"UserName": "operator", "Password": "correct horse", "Context": "x"}"#,
    ),
    known("PATCH", "SessionService", r#"{"SessionTimeout": 600, "Oem": {"Ebof": {"BoundToAddress": false}}}"#),
    known("DELETE", "SessionService/Sessions/*", ""),
    known(
        "PATCH",
        "AccountService",
        r#"{"AccountLockoutThreshold": 5, "AccountLockoutDuration": 60, "AccountLockoutCounterResetAfter": 30,
            "HTTPBasicAuth": "Disabled"}"#,
    ),
    known(
        "POST",
        "AccountService/Accounts",
        r#"{"UserName": "jo", "Password": "a new password", "RoleId": "Operator", "Enabled": true,
            "PasswordChangeRequired": false, "AccountTypes": ["Redfish"], "StrictAccountTypes": false}"#,
    ),
    known(
        "PATCH",
        "AccountService/Accounts/2",
        r#"{"UserName": "joe", "RoleId": "ReadOnly", "Enabled": false, "Locked": false, "PasswordChangeRequired": true}"#,
    ),
    known("DELETE", "AccountService/Accounts/2", ""),
    known(
        "POST",
        "KeyService/NVMeoFSecrets",
        r#"{"KeyString": "DHHC-1:01:marked:", "KeyType": "NVMeoF", "NVMeoF": {
            "NQN": "nqn.2014-08.org.example:alice", "SecurityProtocolType": "DHHC", "SecureHashAllowList": [],
            "OEMSecurityProtocolType": null, "HostKeyId": "k1"}, "Oem": {"Ebof": {"Replace": true}}}"#,
    ),
    known("DELETE", "KeyService/NVMeoFSecrets/*", ""),
    known(
        "PATCH",
        "KeyService/NVMeoFKeyPolicies/nqn.2014-08.org.example~plain",
        r#"{"NVMeoF": {"SecurityProtocolAllowList": ["DHHC"]}, "Oem": {"Ebof": {"Security": "Authenticated"}}}"#,
    ),
    known("PATCH", "EventService", r#"{"DeliveryRetryAttempts": 4, "DeliveryRetryIntervalSeconds": 30}"#),
    known(
        "POST",
        "EventService/Actions/EventService.SubmitTestEvent",
        r#"{"MessageId": "Ebof.1.0.TaskEnded", "MessageSeverity": "OK", "Message": "x", "MessageArgs": ["a", "b"],
            "OriginOfCondition": "/redfish/v1/Chassis", "EventId": "1", "EventTimestamp": "2025-01-01T00:00:00Z",
            "EventType": "Alert", "EventGroupId": 3}"#,
    ),
    known(
        "POST",
        "EventService/Subscriptions",
        r#"{"Destination": "https://192.0.2.1/events", "Protocol": "Redfish", "Context": "x",
            "SubscriptionType": "RedfishEvent", "EventFormatType": "Event", "VerifyCertificate": false,
            "HttpHeaders": [{"Authorization": "Bearer x"}], "DeliveryRetryPolicy": "RetryForever",
            "RegistryPrefixes": ["Ebof"], "MessageIds": ["TaskEnded"], "ExcludeRegistryPrefixes": [],
            "ExcludeMessageIds": [], "EventTypes": ["Alert"], "Severities": ["OK", "Critical"],
            "OriginResources": [{"@odata.id": "/redfish/v1/Chassis"}], "SubordinateResources": true}"#,
    ),
    known(
        "PATCH",
        "EventService/Subscriptions/1",
        r#"{"Context": "y", "DeliveryRetryPolicy": "SuspendRetries", "VerifyCertificate": false}"#,
    ),
    known("DELETE", "EventService/Subscriptions/1", ""),
    known("POST", "EventService/Subscriptions/1/Actions/EventDestination.SuspendSubscription", "{}"),
    known("POST", "EventService/Subscriptions/1/Actions/EventDestination.ResumeSubscription", "{}"),
    known(
        "POST",
        "CertificateService/Actions/CertificateService.GenerateCSR",
        r#"{"CommonName": "box.example", "AlternativeNames": ["box"], "Organization": "o", "OrganizationalUnit": "u",
            "City": "c", "State": "s", "Country": "DE", "KeyPairAlgorithm": "TPM_ALG_ECDSA", "KeyBitLength": 256,
            "KeyCurveId": "TPM_ECC_NIST_P256",
            "CertificateCollection": {"@odata.id": "/redfish/v1/Managers/ebof/NetworkProtocol/HTTPS/Certificates"}}"#,
    ),
    known(
        "POST",
        "CertificateService/Actions/CertificateService.ReplaceCertificate",
        r#"{"CertificateString": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "CertificateType": "PEM",
            "CertificateUri": {"@odata.id": "/redfish/v1/Managers/ebof/NetworkProtocol/HTTPS/Certificates/1"}}"#,
    ),
    known(
        "POST",
        "UpdateService/upload",
        r#"{"Targets": ["/redfish/v1/Chassis/enclosure/Drives/d0"], "Stage": false,
            "@Redfish.OperationApplyTime": "OnReset"}"#,
    ),
    known(
        "POST",
        "UpdateService/Actions/UpdateService.Activate",
        r#"{"Targets": [{"@odata.id": "/redfish/v1/UpdateService/FirmwareInventory/d0-slot1"}]}"#,
    ),
    known(
        "PATCH",
        "Managers/ebof/NetworkProtocol",
        r#"{"HTTPS": {"ProtocolEnabled": true, "Port": 9443}, "HTTP": {"ProtocolEnabled": true, "Port": 8080},
            "SSDP": {"ProtocolEnabled": false}}"#,
    ),
    known("POST", "Managers/ebof/Actions/Manager.Reset", r#"{"ResetType": "ForceRestart"}"#),
    known("POST", "Managers/ebof/LogServices/Events/Actions/LogService.ClearLog", "{}"),
    known("POST", "Managers/ebof/LogServices/ConnectionsRefused/Actions/LogService.ClearLog", "{}"),
    known("POST", "Managers/ebof/LogServices/SlowCommands/Actions/LogService.ClearLog", "{}"),
    known(
        "POST",
        "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Plan",
        r#"{"TOML": "[[hosts]]\nnqn = \"nqn.2014-08.org.example:bob\"\n", "FileName": "x.toml", "Base": "/tmp"}"#,
    ),
    known(
        "POST",
        "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Apply",
        r#"{"TOML": "[[hosts]]\nnqn = \"nqn.2014-08.org.example:bob\"\n", "Revision": "REVISION"}"#,
    ),
    known(
        "POST",
        "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Edit",
        r#"{"Edits": [{"edit": "add-port", "keys": {"name": "fabric7", "listen": "tcp://127.0.0.1:4499"}, "subsystems": []},
            {"edit": "add-port", "keys": {"name": "fabric8", "listen": "tcp://127.0.0.1:4498"}, "subsystems": []}], "Base": "/tmp"}"#,
    ),
    known(
        "POST",
        "Managers/ebof/Actions/Oem/EbofManager.PlanChanges",
        r#"{"Method": "PATCH", "Target": "/redfish/v1/Storage/d0/Controllers/vf1",
            "Body": {"Oem": {"Ebof": {"Weight": 7}}}}"#,
    ),
    known(
        "POST",
        "Chassis/enclosure/Drives/d2/Actions/Drive.SecureErase",
        r#"{"SanitizationType": "Overwrite", "OverwritePasses": 3}"#,
    ),
    known("POST", "Chassis/enclosure/Drives/d4/Actions/Oem/EbofDrive.Remove", r#"{"Surprise": true}"#),
    known("POST", "Chassis/enclosure/Drives/d1/Actions/Oem/EbofDrive.SelfTest", r#"{"Kind": "Short"}"#),
    known(
        "POST",
        "Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive",
        r#"{"DriveName": "d5", "Backing": "mem:1G", "Options": {"functions": 2},
            "NQN": "nqn.2014-08.org.example:d5", "Ports": ["fabric0"], "AllowedHosts": ["nqn.2014-08.org.example:bob"],
            "AllowAnyHost": false}"#,
    ),
    known("POST", "Storage/d0/Actions/Oem/EbofStorage.ResetDrive", "{}"),
    known(
        "PATCH",
        "Storage/d0/Controllers/vf1",
        r#"{"Oem": {"Ebof": {"Weight": 7, "IOPSLimit": null, "BytesPerSecondLimit": 1000000, "MinimumIOPS": 10}}}"#,
    ),
    known(
        "POST",
        "Storage/d0/Controllers/vf2/Actions/StorageController.AttachNamespaces",
        r#"{"Namespaces": [{"@odata.id": "/redfish/v1/Storage/d0/Volumes/ns2"}]}"#,
    ),
    known(
        "POST",
        "Storage/d0/Controllers/vf1/Actions/StorageController.DetachNamespaces",
        r#"{"Namespaces": [{"@odata.id": "/redfish/v1/Storage/d0/Volumes/ns1"}]}"#,
    ),
    known(
        "POST",
        "Storage/d0/Volumes",
        r#"{"CapacityBytes": 1048576, "NVMeNamespaceProperties": {"IsShareable": true,
            "LBAFormat": {"LBADataSizeBytes": 512, "LBAMetadataSizeBytes": 8}},
            "Links": {"Controllers": [{"@odata.id": "/redfish/v1/Storage/d0/Controllers/vf1"}]},
            "Oem": {"Ebof": {"NamespaceId": 9, "AllocatableBytes": 1048576, "ProtectionType": 1, "ProtectionFirst": false,
                             "AttachedHosts": ["nqn.2014-08.org.example:bob"]}}}"#,
    ),
    known(
        "POST",
        "Storage/nqn.2014-08.org.example~plain/Volumes",
        r#"{"BlockSizeBytes": 512, "Oem": {"Ebof": {"NamespaceId": 9, "Backing": "mem:1Mi"}}}"#,
    ),
    known("PATCH", "Storage/d0/Volumes/ns1", r#"{"Oem": {"Ebof": {"WriteProtected": true}}}"#),
    known(
        "PATCH",
        "Storage/nqn.2014-08.org.example~plain/Volumes/ns1",
        r#"{"Oem": {"Ebof": {"WriteProtected": true}}}"#,
    ),
    known("DELETE", "Storage/d0/Volumes/ns1", ""),
    known("DELETE", "Storage/nqn.2014-08.org.example~plain/Volumes/ns1", ""),
    known("POST", "Storage/d0/Volumes/ns1/Actions/Volume.Initialize", r#"{"InitializeType": "Slow"}"#),
    known(
        "POST",
        "Storage/d0/Volumes/ns1/Actions/Oem/EbofVolume.Format",
        r#"{"BlockSizeBytes": 512, "MetadataBytes": 8, "ProtectionType": 1, "ProtectionFirst": true, "Erase": "UserData"}"#,
    ),
    known(
        "POST",
        "Storage/d0/Volumes/ns1/Actions/Oem/EbofVolume.Map",
        r#"{"Controller": {"@odata.id": "/redfish/v1/Storage/d0/Controllers/vf3"}}"#,
    ),
    known(
        "POST",
        "Fabrics/NVMeoF/Endpoints",
        r#"{"EndpointProtocol": "NVMeOverFabrics",
            "Identifiers": [{"DurableName": "nqn.2014-08.org.example:dave", "DurableNameFormat": "NQN"}],
            "ConnectedEntities": [{"EntityRole": "Initiator", "EntityType": "StorageInitiator",
                "Identifiers": [{"DurableName": "nqn.2014-08.org.example:dave", "DurableNameFormat": "NQN"}]}]}"#,
    ),
    known("DELETE", "Fabrics/NVMeoF/Endpoints/host~nqn.2014-08.org.example~bob", ""),
    known(
        "POST",
        "Fabrics/NVMeoF/Connections",
        r#"{"ConnectionType": "Storage", "Links": {
            "InitiatorEndpoints": [{"@odata.id": "/redfish/v1/Fabrics/NVMeoF/Endpoints/host~nqn.2014-08.org.example~bob"}],
            "TargetEndpoints": [{"@odata.id": "/redfish/v1/Fabrics/NVMeoF/Endpoints/d0-pf"}]},
            "Oem": {"Ebof": {"AnyHost": false}}}"#,
    ),
    known(
        "PATCH",
        "Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice",
        r#"{"VolumeInfo": [
            {"Volume": {"@odata.id": "/redfish/v1/Storage/d0/Volumes/ns1"}},
            {"Volume": {"@odata.id": "/redfish/v1/Storage/d0/Volumes/ns2"}, "AccessCapabilities": ["Read"]}]}"#,
    ),
    known("DELETE", "Fabrics/NVMeoF/Connections/d1,any", ""),
    known(
        "POST",
        "Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice/Actions/Connection.AddVolumeInfo",
        r#"{"Volume": {"@odata.id": "/redfish/v1/Storage/d0/Volumes/ns2"}}"#,
    ),
    known(
        "POST",
        "Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice/Actions/Connection.RemoveVolumeInfo",
        r#"{"Volume": {"@odata.id": "/redfish/v1/Storage/d0/Volumes/ns3"}}"#,
    ),
    known(
        "PATCH",
        "Fabrics/NVMeoF/Zones/fabric0",
        r#"{"Links": {"Endpoints": [{}, {}, {}, {}, {}, {}, {}, {"@odata.id": "/redfish/v1/Fabrics/NVMeoF/Endpoints/d0-vf3"}]}}"#,
    ),
    known(
        "PATCH",
        "Fabrics/PCIe/Zones/direct1",
        r#"{"Links": {"Endpoints": [{"@odata.id": "/redfish/v1/Fabrics/PCIe/Endpoints/d1-vf2"}]}}"#,
    ),
    known(
        "POST",
        "Fabrics/NVMeoF/Zones/fabric0/Actions/Zone.AddEndpoint",
        r#"{"Endpoint": {"@odata.id": "/redfish/v1/Fabrics/NVMeoF/Endpoints/d0-vf3"}}"#,
    ),
    known(
        "POST",
        "Fabrics/NVMeoF/Zones/fabric0/Actions/Zone.RemoveEndpoint",
        r#"{"Endpoint": {"@odata.id": "/redfish/v1/Fabrics/NVMeoF/Endpoints/d0-vf1"}}"#,
    ),
    known(
        "POST",
        "Fabrics/PCIe/Zones/direct2/Actions/Zone.AddEndpoint",
        r#"{"Endpoint": {"@odata.id": "/redfish/v1/Fabrics/PCIe/Endpoints/d0-vf3"}}"#,
    ),
    known(
        "POST",
        "Fabrics/PCIe/Zones/direct1/Actions/Zone.RemoveEndpoint",
        r#"{"Endpoint": {"@odata.id": "/redfish/v1/Fabrics/PCIe/Endpoints/d0-vf2"}}"#,
    ),
];
