//! The queue of changes: how long it may be, and who is not served any more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ebof_server::Settings;

use super::*;

const TEXT: &str = "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\nallow_any_host = true\n\
                    nqn = \"nqn.2014-08.org.example:disks\"\nnamespaces = [\"mem:1Mi\"]\n";

fn loaded(text: &str) -> Loaded {
    ebof_manage::load("a.toml", text).unwrap()
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Applied, Refusal>> + 'a>>;

fn poll(waiting: &mut Waiting<'_>) -> Poll<Result<Applied, Refusal>> {
    waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn changes_wait_in_a_bounded_queue_and_those_of_clients_that_have_gone_are_not_made() {
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Arc::new(Target::start(loaded(TEXT).config, settings).unwrap());
    let before = target.config();
    let (reloads, reloader) = Reloads::without_thread(StartedWith::Arguments, None, Arc::clone(&target));
    let more = TEXT.replace("[\"mem:1Mi\"]", "[\"mem:1Mi\", \"mem:2Mi\"]");
    let apply =
        || -> Waiting<'_> { Box::pin(reloads.apply(loaded(&more), Revision::from_config(&before), Cause::library())) };
    let mut gone = apply();
    assert!(poll(&mut gone).is_pending());
    let mut waiting: Vec<Waiting<'_>> =
        (1..WAITING_MAX).map(|_| Box::pin(reloads.reload(Asker::Library)) as Waiting<'_>).collect();
    assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_pending()));
    assert!(matches!(poll(&mut apply()), Poll::Ready(Err(Refusal::Busy))));
    // Signals are not among them.
    reloads.signal(Signal::Rescan);
    reloads.signal(Signal::Rescan);
    drop(gone);
    reloads.requests.send(Request::Signal(Signal::Reload)).unwrap();
    let mut made = 0;
    while let Ok(request) = reloader.requests.try_recv() {
        reloader.serve(request);
        made += 1;
    }
    assert_eq!(made, WAITING_MAX + 2, "one signal of the two that are equal");
    assert!(waiting.iter_mut().all(|waiting| matches!(poll(waiting), Poll::Ready(Ok(_)))));
    assert_eq!(target.config(), before);
    let mut next = apply();
    assert!(poll(&mut next).is_pending(), "there is room again");
    reloader.serve(reloader.requests.try_recv().unwrap());
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
    assert_eq!(target.config().subsystems[0].namespaces.len(), 2);
}
