//! One watcher and what it hears: the bytes of a watch or list of the in-process server, late, cut, repeated or not at all.

use crate::faults::Fate;
use crate::stage::Stage;
use bytes::Bytes;
use kerf_control_plane::request::Request;
use kerf_control_plane::rest::Body;
use kerf_control_plane::rest::watch::Watch;
use kerf_controllers::Wake;
use kerf_controllers::moment::Moment;
use kerf_controllers::watcher::{Ask, Do, News, Report, Watcher};
use std::collections::VecDeque;
use std::time::Duration;

/// A server tells a quiet watch so often how far it has come.
const BOOKMARK_EVERY_MS: i64 = 60_000;
/// What may come a second time.
const REPEATED_MAX: usize = 4;

pub(crate) struct Line {
    watcher: Watcher,
    open: Open,
    /// None before the first step.
    until: Option<Moment>,
    pub(crate) is_stale: bool,
}

enum Open {
    Nothing,
    /// Nothing will ever be heard of it.
    Silent,
    Answer(News),
    Stream(Box<Stream>),
}

struct Stream {
    watch: Watch,
    is_opened: bool,
    ends_at: Moment,
    bookmark_at: Moment,
    /// On its way, and when it arrives.
    coming: VecDeque<(Moment, Bytes)>,
    /// What came last, each ending where an event ends.
    last: VecDeque<Bytes>,
    /// The last bookmark is sent.
    is_ending: bool,
    /// The other side is gone, and the connection does not know.
    is_dead: bool,
}

impl Line {
    pub(crate) fn new(watcher: Watcher) -> Self {
        Self { watcher, open: Open::Nothing, until: None, is_stale: false }
    }

    pub(crate) fn plural(&self) -> &'static str {
        self.watcher.source().resource.plural
    }

    /// The connection breaks. What was not read of it is read again from there.
    pub(crate) fn cut(&mut self) {
        if matches!(&self.open, Open::Stream(stream) if stream.is_opened) {
            self.open = Open::Answer(News::Closed { broke: Some("connection reset by peer".to_owned()) });
        }
    }

    /// The other side goes away without a word.
    pub(crate) fn deaden(&mut self) {
        if let Open::Stream(stream) = &mut self.open {
            stream.is_dead = true;
        }
    }

    /// What came last comes again.
    pub(crate) fn repeat(&mut self, now: Moment) {
        if let Open::Stream(stream) = &mut self.open
            && stream.coming.is_empty()
        {
            stream.coming.extend(stream.last.drain(..).map(|piece| (now, piece)));
        }
    }

    /// Hears what there is to hear. Answers whether the operator was told anything.
    pub(crate) fn follow(&mut self, process: usize, stage: &mut Stage, wake: &mut impl FnMut(Wake)) -> bool {
        let now = stage.moment();
        let mut is_told = false;
        loop {
            let news = match self.until {
                None => News::None,
                Some(until) => match self.hear(process, stage, now) {
                    Some(news) => news,
                    None if until <= now => News::Silence,
                    None => return is_told,
                },
            };
            let mut next = self.watcher.step(now, news);
            loop {
                match next {
                    Do::Ask(ask) => self.open = self.ask(process, &ask, stage, now),
                    Do::Wake(told) => {
                        is_told = true;
                        wake(told);
                    }
                    Do::Report(Report::Stale(is_stale)) => self.is_stale = is_stale,
                    Do::Report(Report::Waits(_) | Report::Has) => {}
                    Do::Wait(until) => {
                        self.until = Some(until);
                        if !self.watcher.listens() {
                            self.open = Open::Nothing;
                        }
                        break;
                    }
                }
                next = self.watcher.step(now, News::None);
            }
        }
    }

    /// When something will happen here although nothing happens elsewhere.
    pub(crate) fn due(&self) -> impl Iterator<Item = Moment> {
        let of_stream = match &self.open {
            Open::Stream(stream) if !stream.is_dead => {
                let coming = stream.coming.front().map_or(stream.bookmark_at, |(at, _)| *at);
                Some(coming.min(stream.ends_at))
            }
            _ => None,
        };
        self.until.into_iter().chain(of_stream)
    }

    fn hear(&mut self, process: usize, stage: &mut Stage, now: Moment) -> Option<News> {
        let stream = match &mut self.open {
            Open::Nothing | Open::Silent => return None,
            Open::Answer(_) => {
                let Open::Answer(news) = std::mem::replace(&mut self.open, Open::Nothing) else { return None };
                return Some(news);
            }
            Open::Stream(stream) => stream,
        };
        if !std::mem::replace(&mut stream.is_opened, true) {
            return Some(News::Opened { is_wire: false });
        }
        if stream.is_dead || stage.weather.is_cut_off(process, now) {
            return None;
        }
        while let Some(piece) = stream.watch.try_next() {
            stream.send(piece, stage, now);
        }
        let is_last = stream.ends_at <= now && !stream.is_ending;
        if stream.coming.is_empty() && (stream.bookmark_at <= now || is_last) {
            stream.is_ending |= is_last;
            stream.bookmark_at = next_bookmark(now);
            if stream.watch.wants_bookmarks {
                stream.coming.push_back((now, stream.watch.bookmark(false)));
            }
        }
        if stream.coming.front().is_some_and(|(at, _)| *at <= now) {
            return stream.coming.pop_front().map(|(_, piece)| News::Piece(piece));
        }
        if stream.is_ending && stream.coming.is_empty() {
            self.open = Open::Nothing;
            return Some(News::Closed { broke: None });
        }
        None
    }

    fn ask(&mut self, process: usize, ask: &Ask, stage: &mut Stage, now: Moment) -> Open {
        match stage.weather.of_watch(process, self.plural(), &ask.path, now) {
            None => {}
            Some(Fate::Refused { refused, .. }) => {
                stage.note(|| format!("p{process} {} refused {}", ask.path, refused.failure.status));
                return Open::Answer(News::Refused(refused));
            }
            Some(_) => return Open::Silent,
        }
        let (path, query) = ask.path.split_once('?').unwrap_or((&ask.path, ""));
        let answer = stage.server.handle(&Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: ask.accept.to_owned(),
            content_type: String::new(),
            user_agent: crate::stage::AGENT.to_owned(),
            body: Bytes::new(),
        });
        if answer.status != 200 {
            return Open::Answer(News::Refused(crate::stage::failure(&answer).into()));
        }
        match answer.body {
            Body::Whole(bytes) => Open::Answer(News::Page(bytes)),
            Body::Pieces(pieces) => Open::Answer(News::Page(pieces.concat().into())),
            Body::Watch(watch) => {
                let ends_at = watch.ends_after.map_or(Moment(i64::MAX), |after| now.after(after));
                Open::Stream(Box::new(Stream {
                    watch: *watch,
                    is_opened: false,
                    ends_at,
                    bookmark_at: next_bookmark(now),
                    coming: VecDeque::new(),
                    last: VecDeque::new(),
                    is_ending: false,
                    is_dead: false,
                }))
            }
        }
    }
}

impl Stream {
    /// A piece is on its way; never before the one that was sent earlier.
    fn send(&mut self, piece: Bytes, stage: &mut Stage, now: Moment) {
        let earliest = self.coming.back().map_or(now, |(at, _)| (*at).max(now));
        if self.last.len() >= REPEATED_MAX {
            self.last.pop_front();
        }
        self.last.push_back(piece.clone());
        match stage.weather.of_piece(piece.len()) {
            None => self.coming.push_back((earliest, piece)),
            Some((late_ms, cut)) => {
                let late = now.after(Duration::from_millis(late_ms.unsigned_abs())).max(earliest);
                self.coming.push_back((earliest, piece.slice(..cut)));
                self.coming.push_back((late, piece.slice(cut..)));
            }
        }
    }
}

/// All bookmarks come at the same times, so that time stops seldom for them.
fn next_bookmark(now: Moment) -> Moment {
    Moment((now.0.div_euclid(BOOKMARK_EVERY_MS) + 1) * BOOKMARK_EVERY_MS)
}
