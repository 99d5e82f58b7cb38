//! The system calls that a process keeps, and the filter of all others.
//!
//! What is not in a list here is answered with EPERM, and the kernel's audit tells of it. The lists
//! are those calls that the processes were seen to make, and those that the C library makes in
//! their place in other versions. Arguments are looked at where a call has kinds that nobody needs:
//! processes and namespaces by `clone`, families of sockets, writable memory that is executed.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Which process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// A target.
    Target,
    /// An attach daemon that makes its devices: it may mount.
    AttachStart,
    /// An attach daemon that has them: it may unmount. Both start losetup and blockdev, which have
    /// the same filter.
    Attach,
}

/// Calls with any arguments, on every architecture.
const PLAIN: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_chdir,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_mincore,
    libc::SYS_mkdirat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pidfd_open,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sysinfo,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
    // Answered with ENOSYS by the other filter.
    libc::SYS_clone3,
];

/// How a target signals the interrupts of virtual machines without ever waiting (asynchronous I/O
/// that ends at once, and tells an eventfd).
const SIGNALS: &[i64] = &[libc::SYS_io_destroy, libc::SYS_io_getevents, libc::SYS_io_setup, libc::SYS_io_submit];

/// Those that only older architectures have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

/// What `clone` is told for a thread of this process, and must not be told: a process, namespaces.
const THREAD: u64 = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;
const NAMESPACES: u64 = 0x7e02_0080;

/// Families of sockets, beside netlink.
const FAMILIES: &[libc::c_int] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Raw packets are for nobody here.
const SOCKETS: &[libc::c_int] = &[libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET];

/// The bits of a socket's type that are not flags.
const SOCKET_TYPE: u64 = 0xf;

/// Protocols of netlink: addresses and routes, and RDMA's devices.
const NETLINKS: &[libc::c_int] = &[libc::NETLINK_ROUTE, libc::NETLINK_RDMA];

/// What `ioctl` may not do to a terminal: type for its user, become its owner, take its place.
const TERMINAL: &[u64] = &[0x5412, 0x540e, 0x541c, 0x541d, 0x5423];

/// What a process may ask of `keyctl`: a keyring of its own, what is in one, and what a key holds
/// (`KEYCTL_GET_KEYRING_ID`, `KEYCTL_LINK`, `KEYCTL_READ`).
const KEYCTL: &[u64] = &[0, 8, 11];

/// What a process may ask of `prctl`.
const PRCTL: &[libc::c_int] = &[
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_SET_THP_DISABLE,
    libc::PR_GET_THP_DISABLE,
    // The C library names its memory.
    libc::PR_SET_VMA,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters of a process, to be installed in this order: the last one refuses to install more.
///
/// # Errors
/// There is no filter for this architecture.
pub(crate) fn filters(calls: Calls) -> Result<[BpfProgram; 2], BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let refused = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    let allowed = SeccompFilter::new(rules(calls)?, refused(libc::EPERM), SeccompAction::Allow, architecture)?;
    // Its arguments are in memory, where a filter sees nothing: the C library makes threads by
    // `clone` where the kernel does not know it.
    let unknown = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompFilter::new(unknown, SeccompAction::Allow, refused(libc::ENOSYS), architecture)?;
    Ok([unknown.try_into()?, allowed.try_into()?])
}

fn rules(calls: Calls) -> Result<Rules, BackendError> {
    let mut rules: Rules = PLAIN.iter().chain(OLDER).map(|&call| (call, Vec::new())).collect();
    let more: &[i64] = match calls {
        Calls::Target => SIGNALS,
        // Another filter can only refuse more.
        Calls::AttachStart => &[libc::SYS_execve, libc::SYS_mount, libc::SYS_umount2, libc::SYS_seccomp],
        Calls::Attach => &[libc::SYS_execve, libc::SYS_umount2],
    };
    rules.extend(more.iter().map(|&call| (call, Vec::new())));
    let own = u64::from(std::process::id());
    let is_program_started = calls != Calls::Target;
    // A thread of this process or, where programs are started, a process: in no other namespace.
    let (looked_at, wanted) = if is_program_started { (NAMESPACES, 0) } else { (THREAD | NAMESPACES, THREAD) };
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![bits(0, looked_at, wanted)?])?]);
    // A signal to this process, a limit of it.
    rules.insert(libc::SYS_kill, any(0, &[own])?);
    rules.insert(libc::SYS_tgkill, any(0, &[own])?);
    rules.insert(libc::SYS_prlimit64, any(0, &[0, own])?);
    // Of threads, not of a user.
    rules.insert(libc::SYS_setpriority, any(0, &[0])?);
    rules.insert(libc::SYS_prctl, prctl()?);
    rules.insert(libc::SYS_keyctl, any(0, KEYCTL)?);
    rules.insert(libc::SYS_socket, sockets()?);
    rules.insert(libc::SYS_socketpair, any(0, &[number(libc::AF_UNIX)])?);
    let terminal: Result<_, _> = TERMINAL.iter().map(|&command| condition(1, SeccompCmpOp::Ne, command)).collect();
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(terminal?)?]);
    let (write, execute) = (number(libc::PROT_WRITE), number(libc::PROT_EXEC));
    let or = [bits(2, write, 0)?, bits(2, execute, 0)?].map(|one| SeccompRule::new(vec![one]));
    rules.insert(libc::SYS_mmap, or.into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![bits(2, execute, 0)?])?]);
    Ok(rules)
}

fn prctl() -> Result<Vec<SeccompRule>, BackendError> {
    let wanted: Vec<u64> = PRCTL.iter().map(|&option| number(option)).collect();
    let mut rules = any(0, &wanted)?;
    // Not to be dumped, but not the reverse.
    let hide = vec![condition(0, SeccompCmpOp::Eq, number(libc::PR_SET_DUMPABLE))?, condition(1, SeccompCmpOp::Eq, 0)?];
    rules.push(SeccompRule::new(hide)?);
    Ok(rules)
}

fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = Vec::new();
    for &family in FAMILIES {
        for &kind in SOCKETS {
            let family = condition(0, SeccompCmpOp::Eq, number(family))?;
            rules.push(SeccompRule::new(vec![family, bits(1, SOCKET_TYPE, number(kind))?])?);
        }
    }
    for &protocol in NETLINKS {
        let family = condition(0, SeccompCmpOp::Eq, number(libc::AF_NETLINK))?;
        rules.push(SeccompRule::new(vec![family, condition(2, SeccompCmpOp::Eq, number(protocol))?])?);
    }
    Ok(rules)
}

/// The argument is one of these.
fn any(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    values.iter().map(|&value| SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?])).collect()
}

/// The bits of `mask` in the argument are those of `value`.
fn bits(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn condition(argument: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    // All of these arguments are of the type int, or have only 32 bits that mean something.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
}

/// A constant of the C library as the kernel sees it.
fn number(constant: libc::c_int) -> u64 {
    u64::from(constant.cast_unsigned())
}
