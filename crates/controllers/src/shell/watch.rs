//! Drives a watcher over the network. What to ask and what it means, [`crate::watcher`] knows.

use super::caller::{fetch, open};
use super::clock::Timeline;
use super::health::Health;
use super::seat::Message;
use crate::limits::PAGE_BYTES_MAX;
use crate::watcher::{Ask, Do, News, Report, Watcher};
use bytes::Bytes;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What is open, and where the next news come from.
enum Line {
    Nothing,
    Asking(Pin<Box<dyn Future<Output = Answer> + Send>>),
    Open(Box<Body>),
}

enum Answer {
    News(News),
    Opened(Box<Body>, bool),
}

pub(super) struct Follower {
    pub(super) watcher: Watcher,
    pub(super) client: Client,
    pub(super) inbox: mpsc::Sender<Message>,
    pub(super) health: Arc<Health>,
    pub(super) timeline: Timeline,
}

impl Follower {
    /// Until the operator is gone.
    pub(super) async fn follow(mut self) {
        let plural = self.watcher.source().resource.plural;
        let mut line = Line::Nothing;
        let mut news = News::None;
        loop {
            match self.watcher.step(self.timeline.now(), std::mem::replace(&mut news, News::None)) {
                Do::Ask(ask) => line = Line::Asking(Box::pin(request(self.client.clone(), ask))),
                Do::Wake(wake) => {
                    if self.inbox.send(Message::Wake(wake)).await.is_err() {
                        return;
                    }
                }
                Do::Report(Report::Waits(why)) => self.health.waits(plural, why),
                Do::Report(Report::Has) => self.health.has(plural),
                Do::Report(Report::Stale(is_stale)) => self.health.stale(plural, is_stale),
                Do::Wait(until) => {
                    self.health.heard(plural, self.timeline.instant(self.watcher.heard()));
                    if !self.watcher.listens() {
                        line = Line::Nothing;
                    }
                    let until = self.timeline.instant(until);
                    // What has come counts, also when it is late.
                    let outcome = tokio::time::timeout_at(until, hear(&mut line)).await;
                    news = outcome.unwrap_or(News::Silence);
                }
            }
        }
    }
}

/// The next news of what is open; never, when nothing is.
async fn hear(line: &mut Line) -> News {
    match line {
        Line::Nothing => std::future::pending().await,
        Line::Asking(asking) => match asking.await {
            Answer::News(news) => {
                *line = Line::Nothing;
                news
            }
            Answer::Opened(body, is_wire) => {
                *line = Line::Open(body);
                News::Opened { is_wire }
            }
        },
        Line::Open(body) => loop {
            let broke = match body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => return News::Piece(piece),
                    // Trailers say nothing that matters here.
                    Err(_) => continue,
                },
                Some(Err(error)) => Some(error.to_string()),
                None => None,
            };
            *line = Line::Nothing;
            return News::Closed { broke };
        },
    }
}

async fn request(client: Client, ask: Ask) -> Answer {
    if ask.is_watch {
        return match open(&client, "GET", &ask.path, "", Bytes::new(), ask.accept).await {
            Ok((body, is_wire)) => Answer::Opened(Box::new(body), is_wire),
            Err(refused) => Answer::News(News::Refused(refused)),
        };
    }
    Answer::News(match fetch(&client, "GET", &ask.path, "", Bytes::new(), PAGE_BYTES_MAX).await {
        Ok(page) => News::Page(page),
        Err(refused) => News::Refused(refused),
    })
}
