//! The table of routes: every address of the service, with the type of its resource, its methods
//! and their privileges. Whatever else is said of addresses follows from it: how they are parsed
//! and printed, 405 with `Allow` and 403, the OpenAPI document, the registry of privileges, the
//! types of resources that filters of events know.
//!
//! Patterns are below `/redfish/v1/`. A row begins with its variant of the enum of its area, whose
//! parameters are the names in braces, in their order.

use super::parameters::{FabricKind, Log, OwnSchema, Registry};
use super::route::{
    ACTION, AreaRoutes, COMPONENTS, DELETE, GET_POST, KEYS, LOG_IN, LOG_OUT, LOGIN, MANAGER, PATCH, PATCH_DELETE,
    PUBLIC, Parameter, READ, Route, Routed, SESSIONS, USER, USERS, routes,
};

routes! {
    /// Addresses at the root.
    Root(RootPlace) {
        /// `/redfish`.
        Versions => "/redfish", "", READ, PUBLIC;
        /// `/redfish/v1/`.
        Service => "", "ServiceRoot", READ, PUBLIC;
        /// `/redfish/v1/odata`.
        Odata => "odata", "", READ, PUBLIC;
        /// `/redfish/v1/$metadata`.
        Metadata => "$metadata", "", READ, PUBLIC;
        /// `/redfish/v1/openapi.yaml`.
        OpenApi => "openapi.yaml", "", READ, PUBLIC;
    }
    /// Addresses below `/redfish/v1/Chassis`.
    Chassis(ChassisPlace) {
        /// All chassis.
        Collection => "Chassis", "ChassisCollection", READ, COMPONENTS;
        /// The enclosure.
        Enclosure => "Chassis/enclosure", "Chassis", READ, COMPONENTS;
        /// The action that adds a drive.
        AddDrive => "Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive", "", ACTION, MANAGER;
        /// Its drives.
        Drives => "Chassis/enclosure/Drives", "DriveCollection", READ, COMPONENTS;
        /// A drive.
        Drive(drive: String) => "Chassis/enclosure/Drives/{DriveId}", "Drive", READ, COMPONENTS;
        /// A drive's health.
        DriveMetrics(drive: String) => "Chassis/enclosure/Drives/{DriveId}/Metrics", "DriveMetrics", READ, COMPONENTS;
        /// A drive's temperature.
        DriveEnvironment(drive: String)
            => "Chassis/enclosure/Drives/{DriveId}/EnvironmentMetrics", "EnvironmentMetrics", READ, COMPONENTS;
        /// The action that sanitizes a drive.
        SecureErase(drive: String)
            => "Chassis/enclosure/Drives/{DriveId}/Actions/Drive.SecureErase", "", ACTION, COMPONENTS;
        /// The action that takes a drive away.
        RemoveDrive(drive: String)
            => "Chassis/enclosure/Drives/{DriveId}/Actions/Oem/EbofDrive.Remove", "", ACTION, COMPONENTS;
        /// The action that has a drive test itself.
        SelfTest(drive: String)
            => "Chassis/enclosure/Drives/{DriveId}/Actions/Oem/EbofDrive.SelfTest", "", ACTION, COMPONENTS;
        /// What has the network ports.
        Adapters => "Chassis/enclosure/NetworkAdapters", "NetworkAdapterCollection", READ, COMPONENTS;
        /// The one adapter.
        Adapter => "Chassis/enclosure/NetworkAdapters/fabric", "NetworkAdapter", READ, COMPONENTS;
        /// Its ports.
        Ports => "Chassis/enclosure/NetworkAdapters/fabric/Ports", "PortCollection", READ, COMPONENTS;
        /// A port.
        Port(port: String) => "Chassis/enclosure/NetworkAdapters/fabric/Ports/{PortId}", "Port", READ, COMPONENTS;
        /// A port's counters.
        PortMetrics(port: String)
            => "Chassis/enclosure/NetworkAdapters/fabric/Ports/{PortId}/Metrics", "PortMetrics", READ, COMPONENTS;
        /// The drives as PCIe devices.
        Devices => "Chassis/enclosure/PCIeDevices", "PCIeDeviceCollection", READ, COMPONENTS;
        /// A drive as a PCIe device.
        Device(drive: String) => "Chassis/enclosure/PCIeDevices/{PCIeDeviceId}", "PCIeDevice", READ, COMPONENTS;
        /// Its functions.
        Functions(drive: String)
            => "Chassis/enclosure/PCIeDevices/{PCIeDeviceId}/PCIeFunctions", "PCIeFunctionCollection", READ, COMPONENTS;
        /// A function, by drive and function.
        Function(drive: String, function: String)
            => "Chassis/enclosure/PCIeDevices/{PCIeDeviceId}/PCIeFunctions/{PCIeFunctionId}",
            "PCIeFunction", READ, COMPONENTS;
        /// All sensors.
        Sensors => "Chassis/enclosure/Sensors", "SensorCollection", READ, COMPONENTS;
        /// A sensor.
        Sensor(sensor: String) => "Chassis/enclosure/Sensors/{SensorId}", "Sensor", READ, COMPONENTS;
        /// Cooling.
        Thermal => "Chassis/enclosure/ThermalSubsystem", "ThermalSubsystem", READ, COMPONENTS;
        /// Temperatures.
        ThermalMetrics => "Chassis/enclosure/ThermalSubsystem/ThermalMetrics", "ThermalMetrics", READ, COMPONENTS;
        /// Fans.
        Fans => "Chassis/enclosure/ThermalSubsystem/Fans", "FanCollection", READ, COMPONENTS;
        /// A fan.
        Fan(fan: String) => "Chassis/enclosure/ThermalSubsystem/Fans/{FanId}", "Fan", READ, COMPONENTS;
        /// Readings of the box.
        Environment => "Chassis/enclosure/EnvironmentMetrics", "EnvironmentMetrics", READ, COMPONENTS;
    }
    /// Addresses below `/redfish/v1/SessionService`.
    Session(SessionPlace) {
        /// The service.
        Service => "SessionService", "SessionService", PATCH, SESSIONS;
        /// All sessions.
        Sessions => "SessionService/Sessions", "SessionCollection", GET_POST, LOG_IN;
        /// A session.
        Session(session: String) => "SessionService/Sessions/{SessionId}", "Session", DELETE, LOG_OUT;
    }
    /// Addresses below `/redfish/v1/AccountService`.
    Account(AccountPlace) {
        /// The service.
        Service => "AccountService", "AccountService", PATCH, USERS;
        /// All accounts.
        Accounts => "AccountService/Accounts", "ManagerAccountCollection", GET_POST, USERS;
        /// An account, by its number.
        Account(account: String) => "AccountService/Accounts/{ManagerAccountId}", "ManagerAccount", PATCH_DELETE, USER;
        /// All roles.
        Roles => "AccountService/Roles", "RoleCollection", READ, USERS;
        /// A role, by its name.
        Role(role: String) => "AccountService/Roles/{RoleId}", "Role", READ, USERS;
    }
    /// Addresses below `/redfish/v1/TaskService`.
    Task(TaskPlace) {
        /// The service.
        Service => "TaskService", "TaskService", READ, COMPONENTS;
        /// All tasks that are remembered.
        Tasks => "TaskService/Tasks", "TaskCollection", READ, COMPONENTS;
        /// A task, by its number.
        Task(task: String) => "TaskService/Tasks/{TaskId}", "Task", READ, COMPONENTS;
        /// Where the outcome of a task is.
        Monitor(task: String) => "TaskService/TaskMonitors/{TaskId}", "", READ, COMPONENTS;
    }
    /// Addresses below `/redfish/v1/Managers`.
    Manager(ManagerPlace) {
        /// All managers.
        Collection => "Managers", "ManagerCollection", READ, MANAGER;
        /// The manager.
        Manager => "Managers/ebof", "Manager", READ, MANAGER;
        /// Starts it again.
        Reset => "Managers/ebof/Actions/Manager.Reset", "", ACTION, MANAGER;
        /// How it is reached.
        NetworkProtocol => "Managers/ebof/NetworkProtocol", "ManagerNetworkProtocol", PATCH, MANAGER;
        /// Its logs.
        Logs => "Managers/ebof/LogServices", "LogServiceCollection", READ, MANAGER;
        /// A log.
        Log(log: Log) => "Managers/ebof/LogServices/{LogServiceId}", "LogService", READ, MANAGER;
        /// Clears a log.
        ClearLog(log: Log)
            => "Managers/ebof/LogServices/{LogServiceId}/Actions/LogService.ClearLog", "", ACTION, MANAGER;
        /// The entries of a log.
        Entries(log: Log) => "Managers/ebof/LogServices/{LogServiceId}/Entries", "LogEntryCollection", READ, MANAGER;
        /// An entry of a log.
        Entry(log: Log, entry: String)
            => "Managers/ebof/LogServices/{LogServiceId}/Entries/{LogEntryId}", "LogEntry", READ, MANAGER;
        /// The configuration in force.
        Configuration => "Managers/ebof/Oem/Ebof/Configuration", "EbofConfiguration", READ, MANAGER;
        /// Says what another configuration would change.
        Plan => "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Plan", "", ACTION, MANAGER;
        /// Puts another configuration in force.
        Apply => "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Apply", "", ACTION, MANAGER;
        /// Changes single objects of it.
        Edit => "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Edit", "", ACTION, MANAGER;
    }
    /// Addresses below `/redfish/v1/EventService`.
    Event(EventPlace) {
        /// The service.
        Service => "EventService", "EventService", PATCH, MANAGER;
        /// Sends an event that nothing has caused.
        SubmitTestEvent => "EventService/Actions/EventService.SubmitTestEvent", "", ACTION, MANAGER;
        /// The stream.
        Stream => "EventService/SSE", "", READ, MANAGER;
        /// All subscriptions.
        Subscriptions => "EventService/Subscriptions", "EventDestinationCollection", GET_POST, MANAGER;
        /// A subscription.
        Subscription(subscription: String)
            => "EventService/Subscriptions/{EventDestinationId}", "EventDestination", PATCH_DELETE, MANAGER;
        /// Stops its deliveries.
        Suspend(subscription: String)
            => "EventService/Subscriptions/{EventDestinationId}/Actions/EventDestination.SuspendSubscription",
            "", ACTION, MANAGER;
        /// Goes on with them.
        Resume(subscription: String)
            => "EventService/Subscriptions/{EventDestinationId}/Actions/EventDestination.ResumeSubscription",
            "", ACTION, MANAGER;
    }
    /// Addresses below `/redfish/v1/TelemetryService`.
    Telemetry(TelemetryPlace) {
        /// The service.
        Service => "TelemetryService", "TelemetryService", READ, COMPONENTS;
        /// What metrics there are.
        MetricDefinitions => "TelemetryService/MetricDefinitions", "MetricDefinitionCollection", READ, COMPONENTS;
        /// A metric.
        MetricDefinition(metric: String)
            => "TelemetryService/MetricDefinitions/{MetricDefinitionId}", "MetricDefinition", READ, COMPONENTS;
        /// What reports there are.
        ReportDefinitions
            => "TelemetryService/MetricReportDefinitions", "MetricReportDefinitionCollection", READ, COMPONENTS;
        /// A report, as it is defined.
        ReportDefinition(report: String)
            => "TelemetryService/MetricReportDefinitions/{MetricReportDefinitionId}",
            "MetricReportDefinition", READ, COMPONENTS;
        /// The reports.
        Reports => "TelemetryService/MetricReports", "MetricReportCollection", READ, COMPONENTS;
        /// A report, or the history of an object.
        Report(report: String) => "TelemetryService/MetricReports/{MetricReportId}", "MetricReport", READ, COMPONENTS;
    }
    /// Addresses of certificates.
    Certificate(CertificatePlace) {
        /// The service.
        Service => "CertificateService", "CertificateService", READ, MANAGER;
        /// Makes a request for a certificate.
        GenerateCsr => "CertificateService/Actions/CertificateService.GenerateCSR", "", ACTION, MANAGER;
        /// Replaces a certificate.
        Replace => "CertificateService/Actions/CertificateService.ReplaceCertificate", "", ACTION, MANAGER;
        /// Where certificates are.
        Locations => "CertificateService/CertificateLocations", "CertificateLocations", READ, MANAGER;
        /// Those of HTTPS.
        Https => "Managers/ebof/NetworkProtocol/HTTPS/Certificates", "CertificateCollection", READ, MANAGER;
        /// The one of HTTPS.
        HttpsCertificate => "Managers/ebof/NetworkProtocol/HTTPS/Certificates/1", "Certificate", READ, MANAGER;
    }
    /// Addresses below `/redfish/v1/KeyService`.
    Key(KeyPlace) {
        /// The service.
        Service => "KeyService", "KeyService", READ, KEYS;
        /// All keys that are stored.
        Keys => "KeyService/NVMeoFSecrets", "KeyCollection", GET_POST, KEYS;
        /// A key that is stored, by its identifier.
        Key(key: String) => "KeyService/NVMeoFSecrets/{KeyId}", "Key", DELETE, KEYS;
        /// What subsystems demand.
        Policies => "KeyService/NVMeoFKeyPolicies", "KeyPolicyCollection", READ, KEYS;
        /// What one of them demands.
        Policy(policy: String) => "KeyService/NVMeoFKeyPolicies/{KeyPolicyId}", "KeyPolicy", PATCH, KEYS;
    }
    /// Addresses below `/redfish/v1/UpdateService`.
    Update(UpdatePlace) {
        /// The service.
        Service => "UpdateService", "UpdateService", READ, COMPONENTS;
        /// Where images are sent.
        Upload => "UpdateService/upload", "", ACTION, COMPONENTS;
        /// Has images of slots run.
        Activate => "UpdateService/Actions/UpdateService.Activate", "", ACTION, COMPONENTS;
        /// All images.
        Inventory => "UpdateService/FirmwareInventory", "SoftwareInventoryCollection", READ, COMPONENTS;
        /// The program, or a slot of a drive: `d3-slot2`.
        Image(image: String)
            => "UpdateService/FirmwareInventory/{SoftwareInventoryId}", "SoftwareInventory", READ, COMPONENTS;
    }
    /// Addresses below `/redfish/v1/Registries`.
    Registry(RegistryPlace) {
        /// All registries.
        Collection => "Registries", "MessageRegistryFileCollection", READ, LOGIN;
        /// Where a registry is.
        File(registry: Registry) => "Registries/{MessageRegistryFileId}", "MessageRegistryFile", READ, LOGIN;
        /// ebof's messages.
        Messages => "Registries/Ebof/Ebof.1.0.0.json", "MessageRegistry", READ, LOGIN;
        /// ebof's privileges.
        Privileges => "Registries/EbofPrivileges/EbofPrivileges.1.0.0.json", "PrivilegeRegistry", READ, LOGIN;
    }
    /// Addresses of schemas.
    Schema(SchemaPlace) {
        /// All JSON schemas.
        Collection => "JsonSchemas", "JsonSchemaFileCollection", READ, LOGIN;
        /// Where a JSON schema is: `Drive.v1_22_0`.
        File(kind: String) => "JsonSchemas/{JsonSchemaFileId}", "JsonSchemaFile", READ, LOGIN;
        /// A schema of ebof's own: `EbofTask_v1.xml`.
        Own(file: OwnSchema) => "schemas/{Schema}", "", READ, PUBLIC;
    }
    /// Addresses below `/redfish/v1/Storage`. The first name is the subsystem's identifier.
    Storage(StoragePlace) {
        /// All subsystems.
        Collection => "Storage", "StorageCollection", READ, COMPONENTS;
        /// A subsystem.
        Subsystem(storage: String) => "Storage/{StorageId}", "Storage", READ, COMPONENTS;
        /// The action that resets the primary controller of a drive.
        ResetDrive(storage: String) => "Storage/{StorageId}/Actions/Oem/EbofStorage.ResetDrive", "", ACTION, COMPONENTS;
        /// Its controllers.
        Controllers(storage: String)
            => "Storage/{StorageId}/Controllers", "StorageControllerCollection", READ, COMPONENTS;
        /// A controller.
        Controller(storage: String, controller: String)
            => "Storage/{StorageId}/Controllers/{StorageControllerId}", "StorageController", PATCH, COMPONENTS;
        /// The action that attaches namespaces to a controller.
        Attach(storage: String, controller: String)
            => "Storage/{StorageId}/Controllers/{StorageControllerId}/Actions/StorageController.AttachNamespaces",
            "", ACTION, COMPONENTS;
        /// The action that detaches them.
        Detach(storage: String, controller: String)
            => "Storage/{StorageId}/Controllers/{StorageControllerId}/Actions/StorageController.DetachNamespaces",
            "", ACTION, COMPONENTS;
        /// Its volumes.
        Volumes(storage: String) => "Storage/{StorageId}/Volumes", "VolumeCollection", GET_POST, COMPONENTS;
        /// A volume.
        Volume(storage: String, volume: String)
            => "Storage/{StorageId}/Volumes/{VolumeId}", "Volume", PATCH_DELETE, COMPONENTS;
        /// What a volume takes, and its traffic.
        VolumeMetrics(storage: String, volume: String)
            => "Storage/{StorageId}/Volumes/{VolumeId}/Metrics", "VolumeMetrics", READ, COMPONENTS;
        /// The action that formats a volume.
        Initialize(storage: String, volume: String)
            => "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Volume.Initialize", "", ACTION, COMPONENTS;
        /// The action that formats a volume with other blocks.
        Format(storage: String, volume: String)
            => "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Oem/EbofVolume.Format", "", ACTION, COMPONENTS;
        /// The action that gives a volume to one function and takes it from all others.
        Map(storage: String, volume: String)
            => "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Oem/EbofVolume.Map", "", ACTION, COMPONENTS;
    }
    /// Addresses below `/redfish/v1/Systems`.
    System(SystemPlace) {
        /// All systems.
        Collection => "Systems", "ComputerSystemCollection", READ, COMPONENTS;
        /// The one that serves the drives.
        System => "Systems/ebof", "ComputerSystem", READ, COMPONENTS;
        /// Its network interfaces.
        Interfaces => "Systems/ebof/EthernetInterfaces", "EthernetInterfaceCollection", READ, COMPONENTS;
        /// One of them.
        Interface(interface: String)
            => "Systems/ebof/EthernetInterfaces/{EthernetInterfaceId}", "EthernetInterface", READ, COMPONENTS;
    }
    /// Addresses below `/redfish/v1/Fabrics`.
    Fabrics(FabricPlace) {
        /// Both fabrics.
        Collection => "Fabrics", "FabricCollection", READ, COMPONENTS;
        /// A fabric.
        Fabric(fabric: FabricKind) => "Fabrics/{FabricId}", "Fabric", READ, COMPONENTS;
        /// Its endpoints.
        Endpoints(fabric: FabricKind) => "Fabrics/{FabricId}/Endpoints", "EndpointCollection", GET_POST, COMPONENTS;
        /// An endpoint.
        Endpoint(fabric: FabricKind, endpoint: String)
            => "Fabrics/{FabricId}/Endpoints/{EndpointId}", "Endpoint", DELETE, COMPONENTS;
        /// Its connections.
        Connections(fabric: FabricKind)
            => "Fabrics/{FabricId}/Connections", "ConnectionCollection", GET_POST, COMPONENTS;
        /// A connection.
        Connection(fabric: FabricKind, connection: String)
            => "Fabrics/{FabricId}/Connections/{ConnectionId}", "Connection", PATCH_DELETE, COMPONENTS;
        /// Its zones.
        Zones(fabric: FabricKind) => "Fabrics/{FabricId}/Zones", "ZoneCollection", READ, COMPONENTS;
        /// A zone.
        Zone(fabric: FabricKind, zone: String) => "Fabrics/{FabricId}/Zones/{ZoneId}", "Zone", PATCH, COMPONENTS;
        /// The action that gives a function to the port of a zone.
        AddEndpoint(fabric: FabricKind, zone: String)
            => "Fabrics/{FabricId}/Zones/{ZoneId}/Actions/Zone.AddEndpoint", "", ACTION, COMPONENTS;
        /// The action that takes it away.
        RemoveEndpoint(fabric: FabricKind, zone: String)
            => "Fabrics/{FabricId}/Zones/{ZoneId}/Actions/Zone.RemoveEndpoint", "", ACTION, COMPONENTS;
        /// The action that gives a volume to the host of a connection.
        AddVolume(fabric: FabricKind, connection: String)
            => "Fabrics/{FabricId}/Connections/{ConnectionId}/Actions/Connection.AddVolumeInfo", "", ACTION, COMPONENTS;
        /// The action that takes it away.
        RemoveVolume(fabric: FabricKind, connection: String)
            => "Fabrics/{FabricId}/Connections/{ConnectionId}/Actions/Connection.RemoveVolumeInfo",
            "", ACTION, COMPONENTS;
    }
    /// The action's address.
    Plan(PlanPlace) {
        /// `/redfish/v1/Managers/ebof/Actions/Oem/EbofManager.PlanChanges`.
        Plan => "Managers/ebof/Actions/Oem/EbofManager.PlanChanges", "", ACTION, COMPONENTS;
    }
}
