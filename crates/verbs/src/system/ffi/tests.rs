//! Compares the layouts with the headers of the machine, where it has them and a C compiler. With
//! `CPATH=DIRECTORY` others are compared, such as those of another release.

use std::fmt::Write;
use std::fs;
use std::mem::offset_of;
use std::process::Command;

use super::*;

/// What a C expression has to be.
type Expected = (String, u64);

/// Offsets of members, under their names in C, and in front of them the size where it matters.
macro_rules! layout {
    ($all:ident, $c:literal, $rust:ty, $($size:ident)?: $($member:ident $(= $c_member:literal)?),*) => {
        $(let $size = size_of::<$rust>(); $all.push((format!("sizeof({})", $c), $size as u64));)?
        $(
            let name = [$($c_member,)? stringify!($member)][0];
            $all.push((format!("offsetof({}, {name})", $c), offset_of!($rust, $member) as u64));
        )*
    };
}

macro_rules! constants {
    ($all:ident: $($rust:ident = $c:literal),*) => {
        $($all.push(($c.to_owned(), u64::from($rust as u32)));)*
    };
}

fn of_verbs() -> Vec<Expected> {
    let mut all = Vec::new();
    layout!(all, "struct ibv_device", Device, size: node_type, transport_type, name, dev_name, dev_path, ibdev_path);
    layout!(all, "struct ibv_context", Context, : device, ops, cmd_fd, async_fd, num_comp_vectors);
    layout!(all, "struct ibv_context_ops", ContextOps, size: alloc_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv,
        post_send, post_recv);
    layout!(all, "struct ibv_mw", Mw, size: context, pd, rkey, handle, kind = "type");
    layout!(all, "struct ibv_pd", Pd, size: context, handle);
    layout!(all, "struct ibv_mr", Mr, size: context, pd, addr, length, handle, lkey, rkey);
    layout!(all, "struct ibv_comp_channel", CompChannel, size: context, fd, refcnt);
    layout!(all, "struct ibv_cq", Cq, : context, channel, cq_context, handle, cqe);
    layout!(all, "struct ibv_srq", Srq, : context, srq_context, pd, handle);
    layout!(all, "struct ibv_srq_attr", SrqAttr, size: max_wr, max_sge, srq_limit);
    layout!(all, "struct ibv_srq_init_attr", SrqInitAttr, size: srq_context, attr);
    layout!(all, "struct ibv_qp", Qp, : context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type);
    layout!(all, "struct ibv_qp_cap", QpCap, size: max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data);
    layout!(all, "struct ibv_qp_init_attr", QpInitAttr, size:
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
    layout!(all, "struct ibv_qp_attr", QpAttr, size: qp_state, cap, ah_attr, alt_ah_attr, pkey_index, rate_limit);
    layout!(all, "struct ibv_sge", Sge, size: addr, length, lkey);
    layout!(all, "struct ibv_recv_wr", RecvWr, size: wr_id, next, sg_list, num_sge);
    layout!(all, "struct ibv_send_wr", SendWr, size: wr_id, next, sg_list, num_sge, opcode, send_flags,
        invalidate_rkey, remote_addr = "wr.rdma.remote_addr", rkey = "wr.rdma.rkey", mw = "bind_mw.mw", mw_rkey = "bind_mw.rkey",
        mw_mr = "bind_mw.bind_info.mr", mw_addr = "bind_mw.bind_info.addr", mw_length = "bind_mw.bind_info.length",
        mw_access = "bind_mw.bind_info.mw_access_flags");
    layout!(all, "struct ibv_wc", Wc, size: wr_id, status, opcode, vendor_err, byte_len, invalidated_rkey, qp_num,
        src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits);
    layout!(all, "struct ibv_device_attr", DeviceAttr, size: fw_ver, node_guid, max_mr_size, max_qp, max_qp_wr,
        max_sge, max_cqe, max_mr, max_qp_rd_atom, max_qp_init_rd_atom, max_srq, max_srq_wr, phys_port_cnt);
    layout!(all, "struct ibv_port_attr", PortAttr, : state, max_mtu, active_mtu, gid_tbl_len, link_layer, flags);
    layout!(all, "struct ibv_gid_entry", GidEntry, size: gid, gid_index, port_num, gid_type, ndev_ifindex);
    layout!(all, "struct ibv_async_event", AsyncEvent, size: element, event_type);
    constants!(all: TRANSPORT_IWARP = "IBV_TRANSPORT_IWARP", ACCESS_LOCAL_WRITE = "IBV_ACCESS_LOCAL_WRITE",
        ACCESS_REMOTE_WRITE = "IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_READ = "IBV_ACCESS_REMOTE_READ",
        QPT_RC = "IBV_QPT_RC", QPS_ERR = "IBV_QPS_ERR", QP_STATE = "IBV_QP_STATE",
        WR_RDMA_WRITE = "IBV_WR_RDMA_WRITE", WR_SEND = "IBV_WR_SEND", WR_RDMA_READ = "IBV_WR_RDMA_READ",
        WR_LOCAL_INV = "IBV_WR_LOCAL_INV", WR_BIND_MW = "IBV_WR_BIND_MW", MW_TYPE_2 = "IBV_MW_TYPE_2",
        ACCESS_MW_BIND = "IBV_ACCESS_MW_BIND", DEVICE_MEM_MGT_EXTENSIONS = "IBV_DEVICE_MEM_MGT_EXTENSIONS",
        DEVICE_MEM_WINDOW_TYPE_2 = "(IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)",
        WR_SEND_WITH_INV = "IBV_WR_SEND_WITH_INV", SEND_SIGNALED = "IBV_SEND_SIGNALED",
        SEND_INLINE = "IBV_SEND_INLINE", WC_SUCCESS = "IBV_WC_SUCCESS", WC_WITH_INV = "IBV_WC_WITH_INV",
        EVENT_CQ_ERR = "IBV_EVENT_CQ_ERR", EVENT_QP_FATAL = "IBV_EVENT_QP_FATAL",
        EVENT_QP_REQ_ERR = "IBV_EVENT_QP_REQ_ERR", EVENT_QP_ACCESS_ERR = "IBV_EVENT_QP_ACCESS_ERR",
        EVENT_DEVICE_FATAL = "IBV_EVENT_DEVICE_FATAL", EVENT_SRQ_ERR = "IBV_EVENT_SRQ_ERR",
        EVENT_QP_LAST_WQE_REACHED = "IBV_EVENT_QP_LAST_WQE_REACHED");
    all
}

fn of_connection_manager() -> Vec<Expected> {
    let mut all = Vec::new();
    layout!(all, "struct rdma_event_channel", EventChannel, size: fd);
    layout!(all, "struct rdma_addr", Addr, size: src_storage, dst_storage);
    layout!(all, "struct rdma_route", Route, size: addr, path_rec, num_paths);
    layout!(all, "struct rdma_cm_id", CmId, : verbs, channel, context, qp, route, ps, port_num);
    layout!(all, "struct rdma_conn_param", ConnParam, size: private_data, private_data_len, responder_resources,
        initiator_depth, flow_control, retry_count, rnr_retry_count, srq, qp_num);
    layout!(all, "struct rdma_cm_event", CmEvent, : id, listen_id, event, status, conn = "param.conn");
    constants!(all: PS_TCP = "RDMA_PS_TCP", CM_ADDR_RESOLVED = "RDMA_CM_EVENT_ADDR_RESOLVED",
        CM_ADDR_ERROR = "RDMA_CM_EVENT_ADDR_ERROR", CM_ROUTE_RESOLVED = "RDMA_CM_EVENT_ROUTE_RESOLVED",
        CM_ROUTE_ERROR = "RDMA_CM_EVENT_ROUTE_ERROR", CM_CONNECT_REQUEST = "RDMA_CM_EVENT_CONNECT_REQUEST",
        CM_CONNECT_ERROR = "RDMA_CM_EVENT_CONNECT_ERROR", CM_UNREACHABLE = "RDMA_CM_EVENT_UNREACHABLE",
        CM_REJECTED = "RDMA_CM_EVENT_REJECTED", CM_ESTABLISHED = "RDMA_CM_EVENT_ESTABLISHED",
        CM_DISCONNECTED = "RDMA_CM_EVENT_DISCONNECTED", CM_DEVICE_REMOVAL = "RDMA_CM_EVENT_DEVICE_REMOVAL",
        CM_ADDR_CHANGE = "RDMA_CM_EVENT_ADDR_CHANGE", OPTION_ID = "RDMA_OPTION_ID",
        OPTION_ID_TOS = "RDMA_OPTION_ID_TOS", OPTION_ID_REUSEADDR = "RDMA_OPTION_ID_REUSEADDR",
        OPTION_ID_AFONLY = "RDMA_OPTION_ID_AFONLY");
    all
}

/// Compiles a file of static assertions; what the compiler says if it refuses.
fn compile(header: &str, expected: &[Expected]) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layout.c");
    let mut text = format!("#include <stddef.h>\n#include <{header}>\n");
    for (expression, value) in expected {
        writeln!(text, "_Static_assert({expression} == {value}, \"{expression} is not {value}\");").unwrap();
    }
    fs::write(&file, text).unwrap();
    match Command::new("cc").arg("-fsyntax-only").arg(&file).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn layouts_are_those_of_the_headers() {
    let headers = [("infiniband/verbs.h", of_verbs()), ("rdma/rdma_cma.h", of_connection_manager())];
    for (header, expected) in headers {
        if let Err(reason) = compile(header, &[]) {
            println!("skipped: no C compiler, or no {header}: {}", reason.lines().next().unwrap_or_default());
            continue;
        }
        if let Err(differences) = compile(header, &expected) {
            panic!("{header}:\n{differences}");
        }
    }
}

/// The function behind the header's macro, which is exported, writes no more than has room.
#[test]
fn there_is_room_for_newer_members_of_a_port() {
    assert!(size_of::<PortAttr>() >= offset_of!(PortAttr, flags) + 16);
}
