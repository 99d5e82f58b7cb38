//! Loads libibverbs and librdmacm when RDMA is asked for, so that one program runs on machines with
//! and without them. It resolves every function at once: none is missing later. What the functions
//! do, it does not know.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::ffi::{
    AsyncEvent, CmEvent, CmId, CompChannel, ConnParam, Context, Cq, Device, DeviceAttr, EventChannel, GidEntry, Mr, Pd,
    PortAttr, Qp, QpAttr, QpInitAttr, Srq, SrqInitAttr, function,
};
use crate::LoadError;

/// A library, and where it comes from.
struct File {
    name: &'static CStr,
    package: &'static str,
}

static VERBS: File = File { name: c"libibverbs.so.1", package: "ibverbs-providers" };
static CM: File = File { name: c"librdmacm.so.1", package: "librdmacm1" };

/// An open library. It is never closed: its threads, and what it has allocated, may still be there.
struct Library {
    handle: NonNull<c_void>,
    file: &'static File,
}

impl File {
    fn open(&'static self) -> Result<Library, LoadError> {
        // SAFETY: the name is a string of C. What the library does when it is loaded is reading its
        // configuration and looking for its plug-ins.
        // JUSTIFICATION: a program that is linked with the library does not start without it.
        let handle = unsafe { libc::dlopen(self.name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Library { handle, file: self }),
            None => Err(LoadError::Library {
                library: self.name.to_str().unwrap_or_default(),
                package: self.package,
                reason: linker_message(),
            }),
        }
    }
}

impl Library {
    /// `symbol` is the name of a function with a zero byte behind it.
    fn symbol(&self, symbol: &'static str) -> Result<NonNull<c_void>, LoadError> {
        let name = CStr::from_bytes_with_nul(symbol.as_bytes()).expect("one zero byte, at the end");
        // SAFETY: the handle is that of an open library, the name a string of C.
        // JUSTIFICATION: as in `File::open`.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        NonNull::new(address).ok_or(LoadError::Symbol {
            library: self.file.name.to_str().unwrap_or_default(),
            package: self.file.package,
            symbol: symbol.trim_end_matches('\0'),
        })
    }
}

/// What the dynamic linker has to say about the call that has just failed in this thread.
fn linker_message() -> String {
    // SAFETY: it takes nothing, and returns a string that is this thread's until its next call.
    // JUSTIFICATION: the reason is needed by whoever has to install something.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return String::new();
    }
    // SAFETY: a string of C, which is copied before anything else is called.
    // JUSTIFICATION: as above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into()
}

/// Defines the table of functions, and how it is filled.
macro_rules! functions {
    ($($library:ident: $file:ident { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions of both libraries, under their own names.
        pub(super) struct Functions {
            $($(pub(super) $name: function!(($($argument),*) $(-> $result)?),)*)*
        }

        impl Functions {
            fn load() -> Result<Functions, LoadError> {
                $(let $library = $file.open()?;)*
                Ok(Functions {
                    $($($name: {
                        let address = $library.symbol(concat!(stringify!($name), "\0"))?;
                        // SAFETY: the library has a function of this name with this type, as part
                        // of its interface, which does not change within one `.so.1`.
                        // JUSTIFICATION: a function that is looked up by its name has no type.
                        unsafe {
                            std::mem::transmute::<NonNull<c_void>, function!(($($argument),*) $(-> $result)?)>(address)
                        }
                    },)*)*
                })
            }
        }
    };
}

functions! {
    verbs: VERBS {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut Device;
        ibv_free_device_list: fn(*mut *mut Device);
        ibv_open_device: fn(*mut Device) -> *mut Context;
        ibv_close_device: fn(*mut Context) -> c_int;
        ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
        ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
        _ibv_query_gid_table: fn(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
        ibv_get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
        ibv_ack_async_event: fn(*mut AsyncEvent);
        ibv_alloc_pd: fn(*mut Context) -> *mut Pd;
        ibv_dealloc_pd: fn(*mut Pd) -> c_int;
        ibv_reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        ibv_dereg_mr: fn(*mut Mr) -> c_int;
        ibv_create_comp_channel: fn(*mut Context) -> *mut CompChannel;
        ibv_destroy_comp_channel: fn(*mut CompChannel) -> c_int;
        ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        ibv_destroy_cq: fn(*mut Cq) -> c_int;
        ibv_get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut Cq, c_uint);
        ibv_create_srq: fn(*mut Pd, *mut SrqInitAttr) -> *mut Srq;
        ibv_destroy_srq: fn(*mut Srq) -> c_int;
        ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
        ibv_destroy_qp: fn(*mut Qp) -> c_int;
    }
    cm: CM {
        rdma_create_event_channel: fn() -> *mut EventChannel;
        rdma_destroy_event_channel: fn(*mut EventChannel);
        rdma_get_cm_event: fn(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        rdma_ack_cm_event: fn(*mut CmEvent) -> c_int;
        rdma_create_id: fn(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut CmId) -> c_int;
        rdma_migrate_id: fn(*mut CmId, *mut EventChannel) -> c_int;
        rdma_set_option: fn(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_bind_addr: fn(*mut CmId, *mut libc::sockaddr) -> c_int;
        rdma_listen: fn(*mut CmId, c_int) -> c_int;
        rdma_resolve_addr: fn(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut CmId, c_int) -> c_int;
        rdma_create_qp: fn(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
        rdma_connect: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_accept: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_reject: fn(*mut CmId, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut CmId) -> c_int;
    }
}

/// The functions, loaded by the first call. A call that fails is repeated by the next one: somebody
/// may have installed the libraries meanwhile.
pub(super) fn functions() -> Result<&'static Functions, LoadError> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let functions = Functions::load()?;
    Ok(FUNCTIONS.get_or_init(|| functions))
}
