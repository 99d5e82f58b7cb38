//! Sends over loopback, where the kernel copies when the receiver reads, and every notification
//! reports this; unread data are still in the sender's memory.

use std::net::{TcpListener, TcpStream};

use rustix::io::Errno;
use rustix::net::send;

use super::*;

fn pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    enable(&listener).unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ours = listener.accept().unwrap().0;
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

fn wait_for_notification(socket: &TcpStream) {
    let mut fds = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::empty())];
    rustix::event::poll(&mut fds, None).unwrap();
}

#[test]
fn notifications_arrive_over_ipv4_and_ipv6_and_report_copies() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (ours, mut theirs) = pair(address);
        let bytes = vec![7; 8192];
        let mut pinned = Pinned::new(SEND_MIN, COPIED_MAX);
        assert!(pinned.wants(4096) && !pinned.wants(4095));
        let mut sum = Collected::default();
        let mut back = Vec::new();
        for round in 0..COPIED_MAX {
            assert_eq!(send(&ours, &bytes, FLAG).unwrap(), bytes.len());
            pinned.note_send();
            assert_eq!(pinned.finish(round), None);
            std::io::Read::read_exact(&mut theirs, &mut vec![0; bytes.len()]).unwrap();
            while pinned.is_waiting() {
                wait_for_notification(&ours);
                let collected = pinned.collect(&ours, |payload| back.push(payload)).unwrap();
                sum.sends += collected.sends;
                sum.copied += collected.copied;
                assert_eq!(collected.fell_back, round == COPIED_MAX - 1);
            }
        }
        assert_eq!(back, (0..COPIED_MAX).collect::<Vec<_>>());
        assert_eq!((sum.sends, sum.copied), (COPIED_MAX, COPIED_MAX));
        assert!(!pinned.wants(1 << 20), "what is copied anyway is not pinned again");
    }
}

#[test]
fn unacknowledged_memory_stays_pinned_until_the_connection_is_aborted() {
    let (ours, theirs) = pair("127.0.0.1:0");
    let bytes = vec![7; 1 << 20];
    let mut pinned = Pinned::new(SEND_MIN, COPIED_MAX);
    let mut sends = 0;
    loop {
        match send(&ours, &bytes, FLAG) {
            Ok(_) => pinned.note_send(),
            Err(Errno::AGAIN) => break,
            Err(errno) => panic!("{errno}"),
        }
        assert_eq!(pinned.finish(sends), None);
        sends += 1;
    }
    let mut back = 0;
    pinned.collect(&ours, |_| back += 1).unwrap();
    assert!(back < sends && pinned.is_waiting());
    let before = acknowledged(&ours).unwrap();
    std::io::Read::read_exact(&mut &theirs, &mut vec![0; 3 << 20]).unwrap();
    while acknowledged(&ours).unwrap() < before + (1 << 20) {
        std::thread::yield_now();
    }
    assert!(pinned.abort_and_wait(&ours, Duration::from_secs(10), |_| back += 1));
    assert_eq!(back, sends, "all of them come back");
    assert!(!pinned.is_waiting());
    // The peer sees an error, not an orderly end.
    let mut theirs = theirs;
    let ended = std::io::copy(&mut theirs, &mut std::io::sink());
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn memory_that_the_kernel_uses_is_not_freed() {
    let payload = std::rc::Rc::new(());
    let (ours, _theirs) = pair("127.0.0.1:0");
    let mut pinned = Pinned::new(SEND_MIN, COPIED_MAX);
    // A network card that never completes.
    pinned.note_send();
    assert!(pinned.finish(std::rc::Rc::clone(&payload)).is_none());
    assert!(!pinned.abort_and_wait(&ours, Duration::ZERO, |_| panic!("it was not told")));
    drop(pinned);
    assert_eq!(std::rc::Rc::strong_count(&payload), 2);
}

#[test]
fn a_socket_without_zero_copy_is_refused() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(enable(&one).is_err());
}
