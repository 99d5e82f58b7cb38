//! What of rdma-core's C interface is used: the structures of libibverbs (`ibv_`) and librdmacm
//! (`rdma_`), as far as their members are read or written here, and the constants beside them. A
//! test compares the layouts with the headers of the machine. It calls nothing: load.rs has the
//! functions.
//!
//! Structures that the libraries allocate may be longer than they are described here; they are
//! accessed through pointers only and never copied. Structures that are passed to the libraries are
//! complete.

use std::ffi::{c_int, c_uint, c_void};

/// The type of a function of the libraries.
macro_rules! function {
    (($($argument:ty),*) $(-> $result:ty)?) => {
        // SAFETY: a type; the caller of the function says why that is sound.
        // JUSTIFICATION: the libraries are in C.
        unsafe extern "C" fn($($argument),*) $(-> $result)?
    };
}

pub(super) use function;

/// A structure of the libraries of which only pointers are used.
#[repr(C)]
pub(super) struct Opaque {
    _private: [u8; 0],
}

/// `struct ibv_device`
#[repr(C)]
pub(super) struct Device {
    ops: [*mut c_void; 2],
    pub(super) node_type: c_int,
    pub(super) transport_type: c_int,
    pub(super) name: [u8; 64],
    pub(super) dev_name: [u8; 64],
    pub(super) dev_path: [u8; 256],
    pub(super) ibdev_path: [u8; 256],
}

/// `enum ibv_transport_type`: iWARP
pub(super) const TRANSPORT_IWARP: c_int = 1;

/// The functions of `struct ibv_context_ops` that the header calls through the context, and which
/// the libraries therefore do not export.
#[repr(C)]
pub(super) struct ContextOps {
    before_alloc_mw: [*mut c_void; 7],
    pub(super) alloc_mw: Option<function!((*mut Pd, c_int) -> *mut Mw)>,
    bind_mw: *mut c_void,
    pub(super) dealloc_mw: Option<function!((*mut Mw) -> c_int)>,
    before_poll_cq: *mut c_void,
    pub(super) poll_cq: Option<function!((*mut Cq, c_int, *mut Wc) -> c_int)>,
    pub(super) req_notify_cq: Option<function!((*mut Cq, c_int) -> c_int)>,
    before_post_srq_recv: [*mut c_void; 7],
    pub(super) post_srq_recv: Option<function!((*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int)>,
    before_post_send: [*mut c_void; 4],
    pub(super) post_send: Option<function!((*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int)>,
    pub(super) post_recv: Option<function!((*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int)>,
    after_post_recv: [*mut c_void; 5],
}

/// `struct ibv_context`: an open device
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    pub(super) ops: ContextOps,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
    pub(super) num_comp_vectors: c_int,
}

/// `struct ibv_pd`: a protection domain
#[repr(C)]
pub(super) struct Pd {
    pub(super) context: *mut Context,
    pub(super) handle: u32,
}

/// `struct ibv_mr`: a registered memory region
#[repr(C)]
pub(super) struct Mr {
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `enum ibv_access_flags`
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub(super) const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub(super) const ACCESS_MW_BIND: c_int = 1 << 4;

/// `struct ibv_mw`: a memory window
#[repr(C)]
pub(super) struct Mw {
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) rkey: u32,
    pub(super) handle: u32,
    /// `type`
    pub(super) kind: c_int,
}

/// `enum ibv_mw_type`: one that is bound by work, for one queue pair
pub(super) const MW_TYPE_2: c_int = 2;

/// `struct ibv_comp_channel`: where completion events arrive
#[repr(C)]
pub(super) struct CompChannel {
    pub(super) context: *mut Context,
    pub(super) fd: c_int,
    pub(super) refcnt: c_int,
}

/// `struct ibv_cq`: a completion queue
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
    pub(super) channel: *mut CompChannel,
    pub(super) cq_context: *mut c_void,
    pub(super) handle: u32,
    pub(super) cqe: c_int,
}

/// `struct ibv_srq`: a shared receive queue
#[repr(C)]
pub(super) struct Srq {
    pub(super) context: *mut Context,
    pub(super) srq_context: *mut c_void,
    pub(super) pd: *mut Pd,
    pub(super) handle: u32,
}

/// `struct ibv_srq_attr`
#[repr(C)]
pub(super) struct SrqAttr {
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) srq_limit: u32,
}

/// `struct ibv_srq_init_attr`
#[repr(C)]
pub(super) struct SrqInitAttr {
    pub(super) srq_context: *mut c_void,
    pub(super) attr: SrqAttr,
}

/// `struct ibv_qp`: a queue pair
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut Pd,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut Srq,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
    pub(super) state: c_int,
    pub(super) qp_type: c_int,
}

/// `struct ibv_qp_cap`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut Srq,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

/// `enum ibv_qp_type`: reliable connected
pub(super) const QPT_RC: c_int = 2;

/// `struct ibv_global_route`
#[repr(C, align(8))]
pub(super) struct GlobalRoute {
    pub(super) dgid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

/// `struct ibv_ah_attr`
#[repr(C)]
pub(super) struct AhAttr {
    pub(super) grh: GlobalRoute,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `struct ibv_qp_attr`
#[repr(C)]
pub(super) struct QpAttr {
    pub(super) qp_state: c_int,
    pub(super) cur_qp_state: c_int,
    pub(super) path_mtu: c_int,
    pub(super) path_mig_state: c_int,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: QpCap,
    pub(super) ah_attr: AhAttr,
    pub(super) alt_ah_attr: AhAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// `enum ibv_qp_state`: everything that is outstanding is flushed
pub(super) const QPS_ERR: c_int = 6;
pub(super) const QPS_RTS: c_int = 3;
/// `enum ibv_qp_attr_mask`
pub(super) const QP_STATE: c_int = 1;
pub(super) const QP_MIN_RNR_TIMER: c_int = 1 << 15;

/// `struct ibv_sge`: a piece of registered memory
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_recv_wr`
#[repr(C)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut RecvWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_send_wr`, with `wr.rdma` and `bind_mw` of the unions
#[repr(C)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendWr,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: c_uint,
    /// In the union with `imm_data`.
    pub(super) invalidate_rkey: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    rest: [u64; 3],
    pub(super) mw: *mut Mw,
    /// The key that the window gets.
    pub(super) mw_rkey: u32,
    pub(super) mw_mr: *mut Mr,
    pub(super) mw_addr: u64,
    pub(super) mw_length: u64,
    pub(super) mw_access: c_uint,
}

impl SendWr {
    /// One without a scatter entry, which does nothing.
    pub(super) const EMPTY: SendWr = SendWr {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: WR_SEND,
        send_flags: 0,
        invalidate_rkey: 0,
        remote_addr: 0,
        rkey: 0,
        rest: [0; 3],
        mw: std::ptr::null_mut(),
        mw_rkey: 0,
        mw_mr: std::ptr::null_mut(),
        mw_addr: 0,
        mw_length: 0,
        mw_access: 0,
    };
}

/// `enum ibv_wr_opcode`
pub(super) const WR_RDMA_WRITE: c_int = 0;
pub(super) const WR_SEND: c_int = 2;
pub(super) const WR_RDMA_READ: c_int = 4;
pub(super) const WR_LOCAL_INV: c_int = 7;
pub(super) const WR_BIND_MW: c_int = 8;
pub(super) const WR_SEND_WITH_INV: c_int = 9;

/// `enum ibv_send_flags`
pub(super) const SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const SEND_INLINE: c_uint = 1 << 3;

/// `struct ibv_wc`: a completion
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: c_int,
    pub(super) opcode: c_int,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    /// In the union with `imm_data`.
    pub(super) invalidated_rkey: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

/// `enum ibv_wc_status`: success
pub(super) const WC_SUCCESS: c_int = 0;
/// `enum ibv_wc_flags`: the peer has invalidated a key
pub(super) const WC_WITH_INV: c_uint = 1 << 3;

/// `struct ibv_device_attr`
#[repr(C)]
pub(super) struct DeviceAttr {
    pub(super) fw_ver: [u8; 64],
    pub(super) node_guid: u64,
    pub(super) sys_image_guid: u64,
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hw_ver: u32,
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    pub(super) device_cap_flags: c_uint,
    pub(super) max_sge: c_int,
    pub(super) max_sge_rd: c_int,
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    pub(super) max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    pub(super) max_ee_rd_atom: c_int,
    pub(super) max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    pub(super) max_ee_init_rd_atom: c_int,
    pub(super) atomic_cap: c_int,
    pub(super) max_ee: c_int,
    pub(super) max_rdd: c_int,
    pub(super) max_mw: c_int,
    pub(super) max_raw_ipv6_qp: c_int,
    pub(super) max_raw_ethy_qp: c_int,
    pub(super) max_mcast_grp: c_int,
    pub(super) max_mcast_qp_attach: c_int,
    pub(super) max_total_mcast_qp_attach: c_int,
    pub(super) max_ah: c_int,
    pub(super) max_fmr: c_int,
    pub(super) max_map_per_fmr: c_int,
    pub(super) max_srq: c_int,
    pub(super) max_srq_wr: c_int,
    pub(super) max_srq_sge: c_int,
    pub(super) max_pkeys: u16,
    pub(super) local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

/// `enum ibv_device_cap_flags`: messages that invalidate a key of the peer, among other things
pub(super) const DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
/// Memory windows of type 2, of either kind
pub(super) const DEVICE_MEM_WINDOW_TYPE_2: c_uint = 1 << 23 | 1 << 24;

/// `struct ibv_port_attr`, as the exported `ibv_query_port` fills it: newer headers append members,
/// which another function writes that the header calls through the context.
#[repr(C)]
pub(super) struct PortAttr {
    pub(super) state: c_int,
    pub(super) max_mtu: c_int,
    pub(super) active_mtu: c_int,
    pub(super) gid_tbl_len: c_int,
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    pub(super) bad_pkey_cntr: u32,
    pub(super) qkey_viol_cntr: u32,
    pub(super) pkey_tbl_len: u16,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    pub(super) lmc: u8,
    pub(super) max_vl_num: u8,
    pub(super) sm_sl: u8,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) phys_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    /// Room for what may be appended.
    pub(super) rest: [u16; 8],
}

/// `struct ibv_gid_entry`
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct GidEntry {
    pub(super) gid: [u8; 16],
    pub(super) gid_index: u32,
    pub(super) port_num: u32,
    pub(super) gid_type: u32,
    pub(super) ndev_ifindex: u32,
}

/// `struct ibv_async_event`
#[repr(C)]
pub(super) struct AsyncEvent {
    /// The completion queue, queue pair, ... that it is about, or the number of a port.
    pub(super) element: *mut c_void,
    pub(super) event_type: c_int,
}

/// `enum ibv_event_type`
pub(super) const EVENT_CQ_ERR: c_int = 0;
pub(super) const EVENT_QP_FATAL: c_int = 1;
pub(super) const EVENT_QP_REQ_ERR: c_int = 2;
pub(super) const EVENT_QP_ACCESS_ERR: c_int = 3;
pub(super) const EVENT_DEVICE_FATAL: c_int = 8;
pub(super) const EVENT_SRQ_ERR: c_int = 14;
pub(super) const EVENT_QP_LAST_WQE_REACHED: c_int = 16;

/// `struct rdma_event_channel`
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct rdma_addr`
#[repr(C)]
pub(super) struct Addr {
    /// In the unions with `sockaddr`, `sockaddr_in` and `sockaddr_in6`.
    pub(super) src_storage: libc::sockaddr_storage,
    pub(super) dst_storage: libc::sockaddr_storage,
    ib: [u64; 5],
}

/// `struct rdma_route`
#[repr(C)]
pub(super) struct Route {
    pub(super) addr: Addr,
    pub(super) path_rec: *mut Opaque,
    pub(super) num_paths: c_int,
}

/// `struct rdma_cm_id`: a connection, or a listener, of the connection manager
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    pub(super) channel: *mut EventChannel,
    pub(super) context: *mut c_void,
    pub(super) qp: *mut Qp,
    pub(super) route: Route,
    pub(super) ps: c_int,
    pub(super) port_num: u8,
}

/// `enum rdma_port_space`: reliable connections
pub(super) const PS_TCP: c_int = 0x0106;

/// `struct rdma_conn_param`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// `struct rdma_cm_event`, with `param.conn` of the union
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) conn: ConnParam,
}

/// `enum rdma_cm_event_type`
pub(super) const CM_ADDR_RESOLVED: c_int = 0;
pub(super) const CM_ADDR_ERROR: c_int = 1;
pub(super) const CM_ROUTE_RESOLVED: c_int = 2;
pub(super) const CM_ROUTE_ERROR: c_int = 3;
pub(super) const CM_CONNECT_REQUEST: c_int = 4;
pub(super) const CM_CONNECT_ERROR: c_int = 6;
pub(super) const CM_UNREACHABLE: c_int = 7;
pub(super) const CM_REJECTED: c_int = 8;
pub(super) const CM_ESTABLISHED: c_int = 9;
pub(super) const CM_DISCONNECTED: c_int = 10;
pub(super) const CM_DEVICE_REMOVAL: c_int = 11;
pub(super) const CM_ADDR_CHANGE: c_int = 14;

/// Options of `rdma_set_option`: the level, and those that are set
pub(super) const OPTION_ID: c_int = 0;
pub(super) const OPTION_ID_TOS: c_int = 0;
pub(super) const OPTION_ID_REUSEADDR: c_int = 1;
pub(super) const OPTION_ID_AFONLY: c_int = 2;

#[cfg(test)]
mod tests;
