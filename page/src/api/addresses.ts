//! Addresses of the service that the page starts from. Others are links of resources.

export const ROOT = "/redfish/v1";
export const SESSIONS = `${ROOT}/SessionService/Sessions`;
export const ACCOUNTS = `${ROOT}/AccountService/Accounts`;
export const KEY_SERVICE = `${ROOT}/KeyService`;
export const KEYS = `${KEY_SERVICE}/NVMeoFSecrets`;
export const KEY_POLICIES = `${KEY_SERVICE}/NVMeoFKeyPolicies`;
export const CHASSIS = `${ROOT}/Chassis/enclosure`;
export const MANAGER = `${ROOT}/Managers/ebof`;
export const CONFIGURATION = `${MANAGER}/Oem/Ebof/Configuration`;
export const EDIT = `${CONFIGURATION}/Actions/EbofConfiguration.Edit`;
export const LOGS = `${MANAGER}/LogServices`;
export const NVMEOF = `${ROOT}/Fabrics/NVMeoF`;
