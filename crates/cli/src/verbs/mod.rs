//! The verbs: what each takes on the command line, and what it does. How results look is in
//! `output`.

pub(crate) mod ana;
mod any_namespace;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod blocks;
mod boot_partition;
mod compare_targets;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod connect_all;
mod connect_file;
mod connections;
pub(crate) mod controller;
pub(crate) mod copy;
mod cross_controller_reset;
mod directive;
mod directives;
pub(crate) mod discover;
pub(crate) mod drive_logs;
mod edit;
mod everything;
pub(crate) mod fabric;
pub(crate) mod features;
pub(crate) mod firmware;
pub(crate) mod firmware_image;
pub(crate) mod functions;
pub(crate) mod generate;
mod guard;
pub(crate) mod host;
pub(crate) mod identify;
pub(crate) mod identify_more;
pub(crate) mod io;
pub(crate) mod keys;
pub(crate) mod lba_status;
#[cfg(test)]
mod line;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod media;
mod metrics;
pub(crate) mod namespaces;
mod neighbours;
mod number;
mod ocp;
mod on_device;
pub(crate) mod pages;
mod passthru;
mod path;
mod persistent;
pub(crate) mod property;
mod qualify;
pub(crate) mod question;
pub(crate) mod rdma_check;
mod reach;
mod record;
mod remote;
pub(crate) mod report;
pub(crate) mod reservations;
mod running;
pub(crate) mod sanitize_ns;
pub(crate) mod security;
pub(crate) mod self_test;
mod services;
mod tags;
pub(crate) mod target;
mod target_drives;
mod target_keys;
pub(crate) mod top;
pub(crate) mod tune;
mod watch;

use self::on_device::OnDevice;
use self::on_device::Results::{Plain, Raw, Structure};
use crate::device::Needs::{Admin, Io};
use crate::program::Program;
use crate::program::verb::{Group, Of, OfProgram, Outcome, Verb};

/// A program with `own` verbs and all those of this crate.
#[must_use]
pub fn program_with(own: &'static [Verb]) -> Program {
    Program::new(own.iter().chain(&VERBS))
}

/// The verbs, by nvme-cli's names where it has them, in the order of the help. To add one: its
/// arguments and what it does in a file here, its row below, and the manual (docs/cli.md).
pub(crate) static VERBS: [Verb; 106] = [
    Verb::new(Group::Serve, "config", &Of(config::run))
        .about("Check a target's configuration, and change that of a running one")
        .example("ebof config check ebof.toml"),
    Verb::new(Group::Serve, "target", &Of(target::TargetVerb::run))
        .about("Show and change a running target")
        .example("ebof target move d3/vf2 --to fabric0"),
    Verb::new(Group::Connect, "discover", &Of(discover::Discover::run))
        .about("List what a discovery service offers")
        .example("ebof discover -t tcp -a 192.168.13.147"),
    Verb::new(Group::Connect, "connect", &Of(connect::Connect::run))
        .about("Connect a subsystem: its namespaces become block devices")
        .example("ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:drive0"),
    Verb::new(Group::Connect, "connect-all", &Of(connect_all::ConnectAll::run))
        .about("Connect everything that a discovery service offers")
        .example("ebof connect-all -t tcp -a 192.168.13.147"),
    Verb::new(Group::Connect, "disconnect", &Of(connect::Disconnect::run))
        .about("Disconnect controllers")
        .example("ebof disconnect -d nvme0"),
    Verb::new(Group::Connect, "disconnect-all", &Of(connect::DisconnectAll::run))
        .about("Disconnect everything")
        .example("ebof disconnect-all"),
    Verb::new(Group::Connect, "list", &Of(list::List::run))
        .about("List the block devices of connected namespaces")
        .example("ebof list"),
    Verb::new(Group::Connect, "list-subsys", &Of(list::ListSubsys::run))
        .about("List connected subsystems and their controllers")
        .example("ebof list-subsys nvme0n1"),
    Verb::new(Group::Connect, "show-topology", &Of(list::ShowTopology::run))
        .about("Show subsystems, namespaces and the paths to them")
        .example("ebof show-topology --ranking ctrl"),
    Verb::new(Group::Connect, "path", &Of(path::Path::run))
        .about("Show the paths of a device, and change how they are used")
        .example("ebof path nvme0n1 --policy round-robin"),
    Verb::new(Group::Connect, "metrics", &Of(metrics::Metrics::run))
        .about("Print metrics of connected devices and paths")
        .example("ebof metrics"),
    Verb::new(Group::Inspect, "id-ctrl", &Of(identify::IdCtrl::run))
        .about("Show Identify Controller")
        .example("ebof id-ctrl nvme0"),
    Verb::new(Group::Inspect, "id-ns", &Of(identify::IdNs::run))
        .about("Show Identify Namespace")
        .example("ebof id-ns nvme+tcp://192.168.13.147:4420/nqn.2014-08.org.example:drive0/1"),
    Verb::new(Group::Inspect, "list-ns", &OnDevice(Admin, Plain, identify::ListNs::run_on))
        .about("List the namespaces of a controller")
        .example("ebof list-ns nvme0 --all"),
    Verb::new(Group::Inspect, "list-ctrl", &OnDevice(Admin, Plain, identify::ListCtrl::run_on))
        .about("List the controllers of a subsystem")
        .example("ebof list-ctrl nvme0 -n 1"),
    Verb::new(Group::Inspect, "ns-descs", &OnDevice(Admin, Structure, identify::ns_descs))
        .about("Show a namespace's identifiers")
        .example("ebof ns-descs nvme0n1"),
    Verb::new(Group::Inspect, "nvm-id-ctrl", &OnDevice(Admin, Structure, identify_more::nvm_controller))
        .about("Show Identify Controller of the NVM command set")
        .example("ebof nvm-id-ctrl nvme0"),
    Verb::new(Group::Inspect, "nvm-id-ns", &OnDevice(Admin, Structure, identify_more::nvm_namespace))
        .about("Show Identify Namespace of the NVM command set")
        .example("ebof nvm-id-ns nvme0n1"),
    Verb::new(Group::Inspect, "cmdset-ind-id-ns", &OnDevice(Admin, Structure, identify_more::independent))
        .about("Show the I/O Command Set Independent Identify Namespace")
        .example("ebof cmdset-ind-id-ns nvme0n1"),
    Verb::new(Group::Inspect, "id-ns-granularity", &OnDevice(Admin, Structure, identify_more::granularity))
        .about("Show the granularity of namespace sizes")
        .example("ebof id-ns-granularity nvme0"),
    Verb::new(Group::Inspect, "list-endgrp", &OnDevice(Admin, Structure, identify_more::endurance_groups))
        .about("List the endurance groups")
        .example("ebof list-endgrp nvme0"),
    Verb::new(Group::Inspect, "id-iocs", &OnDevice(Admin, Structure, identify_more::IdIocs::run_on))
        .about("List the combinations of I/O command sets")
        .example("ebof id-iocs nvme0"),
    Verb::new(Group::Inspect, "id-uuid", &OnDevice(Admin, Structure, identify_more::uuids))
        .about("List the UUIDs of vendor specific information")
        .example("ebof id-uuid nvme0"),
    Verb::new(Group::Inspect, "primary-ctrl-caps", &OnDevice(Admin, Structure, functions::PrimaryCtrlCaps::run_on))
        .about("Show the resources for functions of a drive")
        .example("ebof primary-ctrl-caps nvme0"),
    Verb::new(Group::Inspect, "list-secondary", &OnDevice(Admin, Plain, functions::ListSecondary::run_on))
        .about("List the secondary controllers: the functions of a drive")
        .example("ebof list-secondary nvme0"),
    Verb::new(Group::Inspect, "get-ns-id", &OnDevice(Admin, Plain, controller::get_ns_id))
        .about("Show the NSID of a device")
        .example("ebof get-ns-id /dev/loop0"),
    Verb::new(Group::Inspect, "show-regs", &OnDevice(Admin, Structure, controller::show_regs))
        .about("Show the controller's properties")
        .example("ebof show-regs nvme0 -H"),
    Verb::new(Group::Inspect, "get-reg", &Of(property::GetReg::run))
        .about("Show properties of the controller by their names")
        .example("ebof get-reg nvme0 --csts -H"),
    Verb::new(Group::Inspect, "get-property", &Of(property::GetProperty::run))
        .about("Show a property of the controller")
        .example("ebof get-property nvme0 -O 0x1c -H"),
    Verb::new(Group::Inspect, "get-feature", &OnDevice(Admin, Structure, features::GetFeature::run_on))
        .about("Show a feature")
        .example("ebof get-feature nvme0 -f 7 -H"),
    Verb::new(Group::Inspect, "get-log", &Of(logs::GetLog::run))
        .about("Read any log page")
        .example("ebof get-log nvme0 -i 2 -l 512"),
    Verb::new(Group::Inspect, "smart-log", &OnDevice(Admin, Structure, logs::SmartLog::run_on))
        .about("Show the SMART / Health Information log")
        .example("ebof smart-log nvme0"),
    Verb::new(Group::Inspect, "error-log", &Of(logs::ErrorLog::run))
        .about("Show the Error Information log")
        .example("ebof error-log nvme0 -e 8"),
    Verb::new(Group::Inspect, "fw-log", &OnDevice(Admin, Structure, logs::firmware))
        .about("Show the Firmware Slot Information log")
        .example("ebof fw-log nvme0"),
    Verb::new(Group::Inspect, "effects-log", &Of(logs::EffectsLog::run))
        .about("Show the Commands Supported and Effects log")
        .example("ebof effects-log nvme0 -H"),
    Verb::new(Group::Inspect, "fid-support-effects-log", &OnDevice(Admin, Structure, logs::features))
        .about("Show the Feature Identifiers Supported and Effects log")
        .example("ebof fid-support-effects-log nvme0 -H"),
    Verb::new(Group::Inspect, "changed-ns-list-log", &Of(logs::ChangedNsListLog::run))
        .about("Show the Changed Namespace List log")
        .example("ebof changed-ns-list-log nvme0"),
    Verb::new(Group::Inspect, "changed-alloc-ns-list-log", &OnDevice(Admin, Structure, logs::changed_allocated))
        .about("Show the Changed Allocated Namespace List log")
        .example("ebof changed-alloc-ns-list-log nvme0"),
    Verb::new(Group::Inspect, "supported-log-pages", &OnDevice(Admin, Structure, logs::supported))
        .about("Show the Supported Log Pages log")
        .example("ebof supported-log-pages nvme0"),
    Verb::new(Group::Inspect, "ana-log", &OnDevice(Admin, Raw, ana::AnaLog::run_on))
        .about("Show the Asymmetric Namespace Access log")
        .example("ebof ana-log nvme0"),
    Verb::new(
        Group::Inspect,
        "cross-ctrl-reset-log",
        &OnDevice(Admin, Raw, cross_controller_reset::CrossCtrlResetLog::run_on),
    )
    .about("Show the Cross-Controller Reset log")
    .example("ebof cross-ctrl-reset-log nvme0"),
    Verb::new(Group::Inspect, "self-test-log", &OnDevice(Admin, Structure, self_test::SelfTestLogVerb::run_on))
        .about("Show the Device Self-test log")
        .example("ebof self-test-log nvme0"),
    Verb::new(Group::Inspect, "persistent-event-log", &Of(drive_logs::PersistentEventLog::run))
        .about("Show the Persistent Event Log")
        .example("ebof persistent-event-log nvme0"),
    Verb::new(Group::Inspect, "telemetry-log", &Of(drive_logs::TelemetryLog::run))
        .about("Write telemetry data to a file")
        .example("ebof telemetry-log nvme0 -O telemetry.bin"),
    Verb::new(Group::Inspect, "sanitize-log", &OnDevice(Admin, Structure, drive_logs::SanitizeLogVerb::run_on))
        .about("Show the Sanitize Status log")
        .example("ebof sanitize-log nvme0"),
    Verb::new(Group::Inspect, "endurance-log", &OnDevice(Admin, Structure, drive_logs::EnduranceLog::run_on))
        .about("Show the Endurance Group Information log")
        .example("ebof endurance-log nvme0 -g 1"),
    Verb::new(Group::Inspect, "resv-notif-log", &Of(drive_logs::ResvNotifLog::run))
        .about("Show the Reservation Notification log")
        .example("ebof resv-notif-log nvme0"),
    Verb::new(Group::Inspect, "boot-part-log", &OnDevice(Admin, Plain, boot_partition::BootPartLog::run))
        .about("Write a boot partition to a file")
        .example("ebof boot-part-log nvme0 -f boot.bin"),
    Verb::new(Group::Inspect, "dir-receive", &Of(directives::DirReceive::run))
        .about("Show directives and streams")
        .example("ebof dir-receive nvme0n1 -D 0 -O 1 -H"),
    Verb::new(Group::Inspect, "ocp", &Of(ocp::Ocp::run))
        .about("Show log pages of the Open Compute Project")
        .example("ebof ocp smart-add-log nvme0"),
    Verb::new(Group::Change, "set-feature", &Of(features::SetFeature::run))
        .about("Change a feature")
        .example("ebof set-feature nvme0 -f 0x84 -n 1 -V 1"),
    Verb::new(Group::Change, "dir-send", &Of(directives::DirSend::run))
        .about("Enable and disable directives, and release streams")
        .example("ebof dir-send nvme0n1 -D 0 -O 1 -T 1 -e 1"),
    Verb::new(Group::Change, "set-reg", &OnDevice(Admin, Plain, property::SetReg::run_on))
        .about("Write a property of the controller by its name")
        .example("ebof set-reg nvme0 --cc 0x460001"),
    Verb::new(Group::Change, "set-property", &OnDevice(Admin, Plain, property::SetProperty::run_on))
        .about("Write a property of the controller")
        .example("ebof set-property nvme0 -O 0x14 -V 0x460001"),
    Verb::new(Group::Change, "reset", &Of(controller::Plain::reset))
        .about("Reset a controller: close its connections and connect again")
        .example("ebof reset nvme0"),
    Verb::new(Group::Change, "reauthenticate", &Of(controller::Plain::reauthenticate))
        .about("Prove to a controller again who this host is, and replace the key of --concat")
        .example("ebof reauthenticate nvme0"),
    Verb::new(Group::Change, "subsystem-reset", &OnDevice(Admin, Plain, property::reset))
        .about("Reset the whole NVM subsystem")
        .example("ebof subsystem-reset nvme0"),
    Verb::new(Group::Change, "ns-rescan", &Of(controller::NsRescan::run))
        .about("Rescan namespaces, or the files and block devices of a target")
        .example("ebof ns-rescan nvme0"),
    Verb::new(Group::Namespaces, "create-ns", &OnDevice(Admin, Plain, namespaces::CreateNs::run_on))
        .about("Create a namespace")
        .example("ebof create-ns nvme0 -S 100G --block-size 4096"),
    Verb::new(Group::Namespaces, "delete-ns", &OnDevice(Admin, Plain, namespaces::DeleteNs::run_on))
        .about("Delete a namespace")
        .example("ebof delete-ns nvme0 -n 1"),
    Verb::new(Group::Namespaces, "attach-ns", &OnDevice(Admin, Plain, namespaces::AttachNs::run_on))
        .about("Attach a namespace to controllers")
        .example("ebof attach-ns nvme0 -n 1"),
    Verb::new(Group::Namespaces, "detach-ns", &OnDevice(Admin, Plain, namespaces::DetachNs::run_on))
        .about("Detach a namespace from controllers")
        .example("ebof detach-ns nvme0 -n 1"),
    Verb::new(Group::Namespaces, "virt-mgmt", &OnDevice(Admin, Plain, functions::VirtMgmt::run_on))
        .about("Give functions resources, and take them online and offline")
        .example("ebof virt-mgmt nvme0 -c 1 -a 8 -r 0 -n 9"),
    Verb::new(Group::Reservations, "resv-register", &OnDevice(Io, Plain, reservations::ResvRegister::run_on))
        .about("Register, unregister or replace this host's reservation key")
        .example("ebof resv-register nvme0n1 --nrkey 0xcafe"),
    Verb::new(Group::Reservations, "resv-acquire", &OnDevice(Io, Plain, reservations::ResvAcquire::run_on))
        .about("Acquire a reservation, or take it from others")
        .example("ebof resv-acquire nvme0n1 --crkey 0xcafe -t write-exclusive"),
    Verb::new(Group::Reservations, "resv-release", &Of(reservations::ResvRelease::run))
        .about("Release a reservation, or clear it and all registrants")
        .example("ebof resv-release nvme0n1 --crkey 0xcafe -t write-exclusive"),
    Verb::new(Group::Reservations, "resv-report", &OnDevice(Io, Raw, reservations::ResvReport::run_on))
        .about("Show a namespace's registrants and reservation")
        .example("ebof resv-report nvme0n1"),
    Verb::new(Group::Media, "format", &Of(media::FormatNvm::run))
        .about("Format namespaces: destroys all their data")
        .example("ebof format nvme0n1 --block-size 4096"),
    Verb::new(Group::Media, "sanitize", &Of(media::SanitizeNvm::run))
        .about("Sanitize the drive: destroys all data")
        .example("ebof sanitize nvme0 -a start-crypto-erase"),
    Verb::new(Group::Media, "sanitize-ns", &Of(sanitize_ns::SanitizeNs::run))
        .about("Sanitize a namespace: destroys its data")
        .example("ebof sanitize-ns nvme0n1 -a start-crypto-erase"),
    Verb::new(Group::Media, "device-self-test", &OnDevice(Admin, Plain, self_test::DeviceSelfTest::run))
        .about("Start or show a device self-test")
        .example("ebof device-self-test nvme0 -s short --wait"),
    Verb::new(Group::Media, "fw-image", &Of(firmware_image::FwImage::run))
        .about("Create a firmware image for a drive of ebof")
        .example("ebof fw-image ebof.img --revision 2.0"),
    Verb::new(Group::Media, "fw-download", &Of(firmware::FwDownload::run))
        .about("Send a firmware image")
        .example("ebof fw-download nvme0 -f ebof.img"),
    Verb::new(Group::Media, "fw-commit", &Of(firmware::FwCommit::run))
        .about("Commit a firmware image to a slot, and activate it")
        .aliases(&["fw-activate"])
        .example("ebof fw-commit nvme0 -s 2 -a 3"),
    Verb::new(Group::Media, "security-send", &Of(security::SecuritySend::run))
        .about("Send data of a security protocol")
        .example("ebof security-send nvme0 -f request.bin -p 1"),
    Verb::new(Group::Media, "security-recv", &Of(security::SecurityRecv::run))
        .about("Receive data of a security protocol")
        .example("ebof security-recv nvme0 -x 512"),
    Verb::new(Group::Io, "read", &Of(io::Transfer::read))
        .about("Read blocks")
        .example("ebof read nvme0n1 -s 8 -c 7 -d blocks.bin")
        .letters(&[("storage_tag", 'g'), ("dir_spec", 'S'), ("dry_run", 'w')]),
    Verb::new(Group::Io, "write", &Of(io::Transfer::write))
        .about("Write blocks")
        .example("ebof write nvme0n1 -s 8 -c 7 -d blocks.bin")
        .letters(&[("storage_tag", 'g'), ("dir_spec", 'S'), ("dry_run", 'w')]),
    Verb::new(Group::Io, "compare", &Of(io::Transfer::compare))
        .about("Compare blocks with data")
        .example("ebof compare nvme0n1 -s 8 -c 7 -d blocks.bin")
        .letters(&[("storage_tag", 'g'), ("dir_spec", 'S'), ("dry_run", 'w')]),
    Verb::new(Group::Io, "write-zeroes", &OnDevice(Io, Plain, blocks::WriteZeroes::run_on))
        .about("Write zeros without sending them")
        .example("ebof write-zeroes nvme0n1 -s 0 -c 1023 --deac")
        .letters(&[("storage_tag", 'S'), ("dir_spec", 'D')]),
    Verb::new(Group::Io, "write-uncor", &OnDevice(Io, Plain, blocks::WriteUncor::run_on))
        .about("Mark blocks as unreadable")
        .example("ebof write-uncor nvme0n1 -s 8 -c 0")
        .letters(&[("dir_spec", 'S')]),
    Verb::new(Group::Io, "verify", &OnDevice(Io, Plain, blocks::Verify::run_on))
        .about("Verify that blocks can be read, without transferring them")
        .example("ebof verify nvme0n1 -s 0 -c 1023")
        .letters(&[("storage_tag", 'S')]),
    Verb::new(Group::Io, "copy", &Of(copy::CopyBlocks::run))
        .about("Copy blocks within the controller")
        .example("ebof copy nvme0n1 -s 0 -b 7 -d 1024"),
    Verb::new(Group::Io, "dsm", &Of(blocks::Dsm::run))
        .about("Dataset Management: deallocate blocks")
        .example("ebof dsm nvme0n1 -d -s 0,1024 -b 8,8"),
    Verb::new(Group::Io, "flush", &OnDevice(Io, Plain, blocks::Flush::run_on))
        .about("Make all written data durable")
        .example("ebof flush nvme0n1"),
    Verb::new(Group::Io, "get-lba-status", &OnDevice(Admin, Plain, lba_status::GetLbaStatusVerb::run_on))
        .about("Show which blocks are allocated, or may be unrecoverable")
        .example("ebof get-lba-status nvme0n1 -a allocated"),
    Verb::new(Group::AnyCommand, "admin-passthru", &Of(passthru::Passthru::admin))
        .about("Send any admin command")
        .example("ebof admin-passthru nvme0 -O 0x06 --cdw10 1 --data-len 4096")
        .letters(&[("dry_run", 'd')]),
    Verb::new(Group::AnyCommand, "io-passthru", &Of(passthru::Passthru::io))
        .about("Send any I/O command")
        .example("ebof io-passthru nvme0n1 -O 0x02 --cdw10 8 --data-len 512")
        .letters(&[("dry_run", 'd')]),
    Verb::new(Group::Measure, "bench", &Of::<bench::Args>(|args, global| bench::run(&args, global)))
        .about("Measure a load on namespaces, files and devices")
        .example("ebof bench disk.img --rw randread --bs 4K --iodepth 32"),
    Verb::new(
        Group::Measure,
        "qualify",
        &Of::<qualify::Args>(|args, global| qualify::run(&args, global)),
    )
    .about("Qualify a drive, a host or a fabric by a documented procedure, with a report")
    .example(
        "ebof qualify odcc nvme+tcp://192.168.13.147:4420/nqn.2014-08.org.example:drive0/1 --quick --report report/",
    ),
    Verb::new(Group::Measure, "report", &Of(report::Report::run))
        .about("Show several runs of `qualify` beside each other")
        .example("ebof report monday/ tuesday/ --html"),
    Verb::new(Group::Measure, "top", &Of(top::TopVerb::run))
        .about("Show what a target or this host does, second by second")
        .example("ebof top --kind queues --sort latency"),
    Verb::new(Group::Measure, "rdma-check", &Of(rdma_check::RdmaCheck::run))
        .about("Show RDMA devices, tell why a connection cannot be made, and measure a link")
        .example("ebof rdma-check 192.168.13.147"),
    Verb::new(Group::ThisMachine, "gen-hostnqn", &Of(host::Plain::generate))
        .about("Generate a new host NQN")
        .example("ebof gen-hostnqn"),
    Verb::new(Group::ThisMachine, "show-hostnqn", &Of(host::Plain::show))
        .about("Show this host's NQN")
        .example("ebof show-hostnqn -v"),
    Verb::new(Group::ThisMachine, "gen-dhchap-key", &Of(keys::GenSecret::run))
        .about("Generate a secret for authentication (DH-HMAC-CHAP)")
        .example("ebof gen-dhchap-key --hmac 1"),
    Verb::new(Group::ThisMachine, "check-dhchap-key", &Of(keys::CheckSecret::run))
        .about("Check a secret for authentication")
        .example("ebof check-dhchap-key --keyfile /etc/ebof/keys/blade1"),
    Verb::new(Group::ThisMachine, "gen-tls-key", &Of(keys::GenPsk::run))
        .about("Generate a pre-shared key for TLS")
        .example("ebof gen-tls-key --hmac 1"),
    Verb::new(Group::ThisMachine, "check-tls-key", &Of(keys::CheckPsk::run))
        .about("Check a pre-shared key for TLS, and show its identity")
        .example("ebof check-tls-key --keyfile psk --subsysnqn nqn.2014-08.org.example:drive0"),
    Verb::new(Group::ThisMachine, "keys", &Of(keys::KeysVerb::run))
        .about("Make and check keys, by nvme-cli 3.0's names")
        .example("ebof keys gen-kxchap-secret --hmac 1"),
    Verb::new(Group::ThisMachine, "tune", &Of(tune::Tune::run))
        .about("Show, set and take back the settings of this machine that speed depends on")
        .example("ebof tune --interface enp1s0f1 --apply"),
    Verb::new(Group::ThisMachine, "completions", &OfProgram(generate::Completions::run))
        .about("Print completions for a shell")
        .example("ebof completions bash"),
    Verb::new(Group::ThisMachine, "man", &OfProgram(generate::Man::run))
        .about("Print or write man pages")
        .example("ebof man connect"),
    Verb::new(Group::ThisMachine, "help", &OfProgram(generate::Help::run))
        .about("Show help, also for a verb")
        .example("ebof help connect"),
    Verb::new(Group::ThisMachine, "version", &OfProgram(generate::Version::run))
        .about("Show the version")
        .example("ebof version"),
];
