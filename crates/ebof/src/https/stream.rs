//! Answers that go on as long as their client listens, such as events: they end when their user may
//! not have them any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use ebof_manage::events::Wake;
use ebof_redfish::{Feed, Piece};
use hyper::body::{Bytes, Frame};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

/// How often it is looked whether the user still may.
const INTERVAL: Duration = Duration::from_secs(5);

/// A body that ends when `allowed` says no.
pub(super) struct WhileAllowed<F> {
    body: Body,
    allowed: F,
    ticks: Interval,
}

impl<F: Fn() -> bool> WhileAllowed<F> {
    pub(super) fn new(body: Body, allowed: F) -> Self {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { body, allowed, ticks }
    }
}

impl<F: Fn() -> bool + Unpin> hyper::body::Body for WhileAllowed<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.ticks.poll_tick(context).is_ready() {
            if !(self.allowed)() {
                return Poll::Ready(None);
            }
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}

/// The body of a stream of events. Its reader takes one piece after the other; nothing is kept for
/// one that is slow.
pub(super) fn of_feed(feed: Feed) -> Body {
    let (sender, receiver) = channel(1);
    tokio::spawn(carry(feed, sender));
    Body::new(Received(receiver))
}

/// Asks for pieces until there are no more, or nobody listens. Asking takes locks of the target.
async fn carry(mut feed: Feed, sender: Sender<String>) {
    let news = Arc::new(Notify::new());
    let noted = Arc::clone(&news);
    let wake: Arc<Wake> = Arc::new(move || noted.notify_one());
    feed.events().subscribe(Arc::downgrade(&wake));
    loop {
        let asked = tokio::task::spawn_blocking(move || {
            let piece = feed.next(std::time::Instant::now());
            (feed, piece)
        });
        let Ok((back, piece)) = asked.await else { return };
        feed = back;
        match piece {
            Piece::Text(text) => {
                if sender.send(text).await.is_err() {
                    return;
                }
            }
            Piece::Wait(time) => {
                let _news = timeout(time, news.notified()).await;
                if sender.is_closed() {
                    return;
                }
            }
            Piece::End => return,
        }
    }
}

/// What was sent through a channel.
struct Received(Receiver<String>);

impl hyper::body::Body for Received {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|text| Some(Ok(Frame::data(Bytes::from(text?)))))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use http_body_util::BodyExt as _;

    use super::*;

    /// Gives a byte each second, for ever.
    struct Endless(Interval);

    impl hyper::body::Body for Endless {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            self.0.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_user_may_not_have_it_any_more() {
        let allowed = Cell::new(true);
        let endless = Body::new(Endless(interval(Duration::from_secs(1))));
        let mut body = WhileAllowed::new(endless, || allowed.get());
        for _ in 0..100 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        allowed.set(false);
        let mut more = 0;
        while body.frame().await.is_some() {
            more += 1;
        }
        assert!(more <= 5, "{more}");
    }
}
