#!/usr/bin/env python3
"""Uses a service as OpenStack's client does: client.py URL USER PASSWORD."""

import sys

import sushy
from sushy import auth


def main():
    url, user, password = sys.argv[1:]
    root = sushy.Sushy(url, auth=auth.SessionAuth(user, password), verify=False)
    managers = root.get_manager("/redfish/v1/Managers/ebof")
    assert managers.identity == "ebof", managers.identity
    chassis = root.get_chassis("/redfish/v1/Chassis/enclosure")
    assert str(chassis.chassis_type).endswith("STORAGE_ENCLOSURE") or chassis.chassis_type.value == "StorageEnclosure"
    system = root.get_system()
    assert system.manufacturer == "ebof" and system.status.state.value == "Enabled", system.status
    storages = system.storage.get_members()
    assert any(storage.drives for storage in storages), [storage.identity for storage in storages]
    assert system.ethernet_interfaces.get_members(), "the machine has network interfaces"
    updates = root.get_update_service()
    images = updates.firmware_inventory.get_members()
    assert any(image.identity == "ebof" for image in images), [image.identity for image in images]
    sessions = root.get_session_service()
    assert sessions.session_timeout >= 30
    tasks = root.get_task_monitor
    assert callable(tasks)
    print(f"{len(images)} images; manager {managers.firmware_version}")


if __name__ == "__main__":
    main()
