//! What a process that has given up its rights is refused, and what it may still do. Each story is
//! of a process of its own: this program starts itself again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests with their own main")]

mod raw;

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ebof_manage::api::{Confinement, MeasureState};
use ebof_manage::config::{Measure, Measures};
use ebof_rights::{Calls, CapabilitySet, Paths, Rights, TARGET_CAPABILITIES};
use rustix::io::Errno;

/// Names the story of a process, in its environment.
const STORY: &str = "EBOF_TEST_STORY";
/// Names its directory.
const FOLDER: &str = "EBOF_TEST_FOLDER";

/// A story, which a process of its own has.
type Story = (&'static str, fn(&Path));

const STORIES: &[Story] = &[
    ("forbidden_calls_are_refused", forbidden_calls_are_refused),
    ("forbidden_calls_are_known_without_a_filter", forbidden_calls_are_known_without_a_filter),
    ("arguments_are_looked_at", arguments_are_looked_at),
    ("threads_that_there_are_are_confined", threads_that_there_are_are_confined),
    ("what_a_program_needs_goes_on", what_a_program_needs_goes_on),
    ("an_attach_daemon_mounts_only_at_first", an_attach_daemon_mounts_only_at_first),
    ("only_paths_that_are_named_are_opened", only_paths_that_are_named_are_opened),
    ("no_program_is_started_by_paths_alone", no_program_is_started_by_paths_alone),
    ("capabilities_are_those_that_are_kept", capabilities_are_those_that_are_kept),
    ("memory_is_not_dumped", memory_is_not_dumped),
    ("nothing_is_given_up_unasked", nothing_is_given_up_unasked),
    ("what_one_thread_gives_up_others_would_keep", what_one_thread_gives_up_others_would_keep),
    ("what_a_kernel_refuses_is_told", what_a_kernel_refuses_is_told),
];

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(STORY) {
        let (_, story) = STORIES.iter().find(|(known, _)| *known == name).unwrap();
        story(Path::new(&std::env::var_os(FOLDER).unwrap()));
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let mut failed = 0;
    for (name, _) in STORIES.iter().filter(|(name, _)| filter.as_ref().is_none_or(|filter| name.contains(filter))) {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let run = Command::new(own).env(STORY, name).env(FOLDER, folder.path()).output().unwrap();
        println!("test {name} ... {}", if run.status.success() { "ok" } else { "FAILED" });
        if !run.status.success() {
            println!("{}\n{}", run.status, String::from_utf8_lossy(&run.stderr));
            failed += 1;
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Gives up what these measures are for, as a target.
fn give_up(measures: Measures, paths: Paths) -> Confinement {
    let rights = Rights { measures, capabilities: TARGET_CAPABILITIES, calls: Calls::Target, paths };
    let told = rights.apply();
    assert_eq!(told.failures().next(), None);
    told
}

fn filtered() {
    let told = give_up(Measures::NONE.with(Measure::SystemCalls), Paths::default());
    assert!(told.has(Measure::Privileges), "the kernel takes a filter of whoever has no new privileges");
    assert!(rustix::thread::no_new_privs().unwrap());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Calls that nobody here makes, with arguments that mean nothing.
const FORBIDDEN: &[(&str, i64)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("adjtimex", libc::SYS_adjtimex),
    ("bpf", libc::SYS_bpf),
    ("capset", libc::SYS_capset),
    ("chroot", libc::SYS_chroot),
    ("delete_module", libc::SYS_delete_module),
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("fchownat", libc::SYS_fchownat),
    ("finit_module", libc::SYS_finit_module),
    ("fsopen", libc::SYS_fsopen),
    ("init_module", libc::SYS_init_module),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("mknodat", libc::SYS_mknodat),
    ("mount", libc::SYS_mount),
    ("move_mount", libc::SYS_move_mount),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("personality", libc::SYS_personality),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("pivot_root", libc::SYS_pivot_root),
    ("pkey_mprotect", libc::SYS_pkey_mprotect),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("quotactl", libc::SYS_quotactl),
    ("request_key", libc::SYS_request_key),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("setresuid", libc::SYS_setresuid),
    ("setuid", libc::SYS_setuid),
    ("settimeofday", libc::SYS_settimeofday),
    ("swapon", libc::SYS_swapon),
    ("syslog", libc::SYS_syslog),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("vhangup", libc::SYS_vhangup),
];

/// Arguments at which nothing is, and by which nothing happens: nobody has the descriptor -1.
const NOTHING: [i64; 3] = [-1, -1, -1];

fn refused(result: io::Result<()>) -> bool {
    result.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::PERM))
}

// @test hostile.rights
fn forbidden_calls_are_refused(_folder: &Path) {
    filtered();
    for (name, number) in FORBIDDEN {
        assert!(refused(raw::call(*number, NOTHING)), "{name}");
    }
    let error = Command::new("/bin/sh").exec();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::PERM));
    assert!(Command::new("/bin/sh").status().is_err(), "there is no other process");
}

/// The list above would prove nothing if the kernel refused these calls anyhow.
fn forbidden_calls_are_known_without_a_filter(_folder: &Path) {
    if !is_root() {
        return;
    }
    // Unlike the others these do something with -1, or hang.
    let acts = ["vhangup", "setuid", "setresuid", "personality", "acct", "unshare"];
    let by_kernel = FORBIDDEN.iter().filter(|(name, _)| !acts.contains(name));
    let by_kernel: Vec<_> = by_kernel.filter(|(_, number)| refused(raw::call(*number, NOTHING))).collect();
    // A container has fewer rights than its root; a machine refuses none.
    assert!(by_kernel.len() < FORBIDDEN.len() / 3, "{by_kernel:?}");
}

fn arguments_are_looked_at(_folder: &Path) {
    filtered();
    let socket = |family: libc::c_int, kind: libc::c_int, protocol: libc::c_int| {
        raw::call(libc::SYS_socket, [family.into(), kind.into(), protocol.into()])
    };
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap();
    }
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).unwrap();
    assert!(refused(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT)));
    assert!(refused(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)));
    for family in [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH, libc::AF_XDP] {
        assert!(refused(socket(family, libc::SOCK_DGRAM, 0)), "{family}");
    }
    // A process, a namespace, a signal to another process, its limits, typing on a terminal, memory
    // that is written and executed.
    assert!(refused(raw::call(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0])));
    assert!(refused(raw::call(libc::SYS_clone, [(libc::CLONE_THREAD | libc::CLONE_NEWUSER).into(), 0, 0])));
    assert!(refused(raw::call(libc::SYS_kill, [1, 0, 0])));
    assert!(refused(raw::call(libc::SYS_prlimit64, [1, 0, 0])));
    assert!(refused(raw::call(libc::SYS_ioctl, [-1, 0x5412, 0])));
    assert!(refused(raw::call(libc::SYS_mprotect, [0, 0, (libc::PROT_READ | libc::PROT_EXEC).into()])));
    assert!(refused(raw::call(libc::SYS_mmap, [0, 4096, (libc::PROT_WRITE | libc::PROT_EXEC).into()])));
    assert!(refused(raw::call(libc::SYS_prctl, [libc::PR_SET_DUMPABLE.into(), 1, 0])));
    raw::call(libc::SYS_kill, [std::process::id().into(), 0, 0]).unwrap();
    // Keys are read (there is no key 0), and not changed.
    assert!(!refused(raw::call(libc::SYS_keyctl, [11, 0, 0])));
    assert!(refused(raw::call(libc::SYS_keyctl, [7, 0, 0])) && refused(raw::call(libc::SYS_keyctl, [3, 0, 0])));
}

fn threads_that_there_are_are_confined(_folder: &Path) {
    let (confined, told) = std::sync::mpsc::channel::<()>();
    let before = std::thread::spawn(move || {
        told.recv().unwrap();
        (refused(raw::call(libc::SYS_ptrace, NOTHING)), rustix::thread::no_new_privs().unwrap())
    });
    filtered();
    confined.send(()).unwrap();
    assert_eq!(before.join().unwrap(), (true, true));
    let later = std::thread::spawn(|| refused(raw::call(libc::SYS_ptrace, NOTHING)));
    assert!(later.join().unwrap());
}

fn what_a_program_needs_goes_on(folder: &Path) {
    let mut paths = Paths::default();
    paths.write(folder);
    paths.read("/proc");
    give_up(Measures::ALL, paths);
    let file = folder.join("a");
    std::fs::write(&file, "text").unwrap();
    std::fs::rename(&file, folder.join("b")).unwrap();
    std::fs::create_dir(folder.join("c")).unwrap();
    std::fs::rename(folder.join("b"), folder.join("c/b")).unwrap();
    assert_eq!(std::fs::read_to_string(folder.join("c/b")).unwrap(), "text");
    std::fs::remove_dir_all(folder.join("c")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || TcpStream::connect(address).unwrap());
    listener.accept().unwrap();
    client.join().unwrap();
    let local = std::os::unix::net::UnixListener::bind(folder.join("s")).unwrap();
    UnixStream::connect(folder.join("s")).unwrap();
    drop(local);
    // How interrupts of virtual machines are signalled.
    for call in [libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_io_getevents, libc::SYS_io_destroy] {
        assert!(!refused(raw::call(call, [1, -1, -1])), "{call}");
    }
    assert!(std::fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2"));
    // By a panic, which a target ends with.
    assert!(std::thread::spawn(|| panic!("a test wants it")).join().is_err());
}

fn an_attach_daemon_mounts_only_at_first(_folder: &Path) {
    let stage = |calls| {
        let measures = Measures::NONE.with(Measure::SystemCalls);
        let rights = Rights { measures, capabilities: TARGET_CAPABILITIES, calls, paths: Paths::default() };
        assert_eq!(rights.apply().failures().next(), None);
    };
    let mount = || raw::call(libc::SYS_mount, NOTHING).map_err(|error| error.raw_os_error());
    let before = mount();
    stage(Calls::AttachStart);
    assert_eq!(mount(), before);
    stage(Calls::Attach);
    assert_eq!(mount(), Err(Some(libc::EPERM)));
    assert!(refused(raw::call(libc::SYS_ptrace, NOTHING)));
    // losetup, with its own filter.
    let output = Command::new("grep").args(["Seccomp:", "/proc/self/status"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), "Seccomp:\t2");
    assert!(refused(raw::call(libc::SYS_clone, [(libc::SIGCHLD | libc::CLONE_NEWNS).into(), 0, 0])));
}

fn only_paths_that_are_named_are_opened(folder: &Path) {
    let at = |name: &str| folder.join(name);
    for name in ["read", "write", "other"] {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::write(at(name).join("file"), name).unwrap();
    }
    std::fs::write(at("single"), "").unwrap();
    std::os::unix::fs::symlink(at("other/file"), at("write/link")).unwrap();
    let mut paths = Paths::default();
    paths.read(at("read"));
    paths.write(at("write"));
    paths.write(at("single"));
    let told = give_up(Measures::NONE.with(Measure::Paths), paths.clone());
    assert_eq!(told.paths, paths.rights());
    let denied = |opened: io::Result<()>| opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let read = |path: &Path| File::open(path).map(drop);
    let write = |path: &Path| File::options().write(true).open(path).map(drop);
    let make = |path: PathBuf| File::create_new(path).map(drop);
    read(&at("read/file")).unwrap();
    assert!(denied(write(&at("read/file"))) && denied(make(at("read/new"))));
    read(&at("write/file")).and_then(|()| write(&at("write/file"))).unwrap();
    make(at("write/new")).unwrap();
    std::fs::remove_file(at("write/new")).unwrap();
    write(&at("single")).unwrap();
    assert!(denied(read(&at("other/file"))) && denied(make(at("new"))) && denied(read(Path::new("/etc/passwd"))));
    assert!(denied(read(&at("write/link"))), "a link leads elsewhere");
    assert!(denied(std::fs::rename(at("write/file"), at("other/file"))));
    assert!(std::fs::metadata(at("other/file")).is_ok(), "what is there may be seen");
}

fn no_program_is_started_by_paths_alone(_folder: &Path) {
    let mut paths = Paths::default();
    paths.read("/");
    give_up(Measures::NONE.with(Measure::Paths), paths);
    let error = Command::new("/bin/sh").exec();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

fn capabilities_are_those_that_are_kept(_folder: &Path) {
    let before = rustix::thread::capabilities(None).unwrap();
    let told = give_up(Measures::NONE.with(Measure::Capabilities), Paths::default());
    let has = std::thread::spawn(|| rustix::thread::capabilities(None).unwrap()).join().unwrap();
    let kept = before.permitted & TARGET_CAPABILITIES;
    assert_eq!((has.permitted, has.effective, has.inheritable), (kept, kept, CapabilitySet::empty()));
    assert_eq!(told.capabilities.len(), kept.bits().count_ones() as usize);
    assert!(!told.capabilities.iter().any(|name| name == "CAP_SYS_ADMIN"));
    if before.effective.contains(CapabilitySet::SETPCAP) {
        assert!(!rustix::thread::capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap());
        // What a program of root's gets is that, too.
        let output = Command::new("/bin/sh").args(["-c", "grep CapEff /proc/self/status"]).output().unwrap();
        let effective = String::from_utf8(output.stdout).unwrap();
        let effective = effective.split_whitespace().nth(1).map(|bits| u64::from_str_radix(bits, 16).unwrap());
        assert_eq!(effective, Some(kept.bits()));
    }
}

fn memory_is_not_dumped(_folder: &Path) {
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::Dumpable);
    give_up(Measures::NONE.with(Measure::Dumps), Paths::default());
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
}

fn nothing_is_given_up_unasked(_folder: &Path) {
    let before = rustix::thread::capabilities(None).unwrap();
    let told = give_up(Measures::NONE, Paths::default());
    assert!(told.measures.iter().all(|it| it.state == MeasureState::Off) && told.paths.is_empty());
    assert_eq!(rustix::thread::capabilities(None).unwrap(), before);
    assert!(!rustix::thread::no_new_privs().unwrap());
    File::open("/etc/passwd").unwrap();
    assert!(Command::new("/bin/true").status().unwrap().success());
}

/// Landlock and capabilities are a thread's: it is told that others would keep what they have.
fn what_one_thread_gives_up_others_would_keep(_folder: &Path) {
    let (_end, ended) = std::sync::mpsc::channel::<()>();
    let _other = std::thread::spawn(move || ended.recv());
    let rights = Rights {
        measures: Measures::ALL,
        capabilities: TARGET_CAPABILITIES,
        calls: Calls::Target,
        paths: Paths::default(),
    };
    let told = rights.apply();
    let failed: Vec<Measure> = told.failures().map(|it| it.measure).collect();
    assert_eq!(failed, [Measure::Capabilities, Measure::Paths]);
    assert!(told.failures().all(|it| it.problem.as_ref().unwrap().contains("threads run already")));
    assert!(told.has(Measure::SystemCalls) && told.has(Measure::Dumps));
}

/// As in a container whose filter has no Landlock.
fn what_a_kernel_refuses_is_told(folder: &Path) {
    filtered();
    let measures = Measures::NONE.with(Measure::Paths);
    let rights = Rights { measures, capabilities: TARGET_CAPABILITIES, calls: Calls::Target, paths: Paths::default() };
    let told = rights.apply();
    let failed: Vec<_> = told.failures().collect();
    assert_eq!((failed.len(), failed[0].measure, failed[0].state), (1, Measure::Paths, MeasureState::Failed));
    assert!(failed[0].problem.is_some() && told.paths.is_empty());
    std::fs::write(folder.join("a"), "").unwrap();
}
