//! The probes' port, open from the first moment: what the operator waits for before it can begin is no reason to start it again.

use super::pages::say_waiting;
use kerf_controllers::shell::{Bounds, Pages, serve};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shows one set of pages after the other.
#[derive(Clone)]
pub(crate) struct Porch(Arc<Mutex<Pages>>);

impl Porch {
    /// Opens at once.
    pub(crate) fn open(listener: TcpListener) -> std::io::Result<Self> {
        let porch = Self(Arc::new(Mutex::new(say_waiting("nothing has been looked at yet"))));
        let current = porch.clone();
        let every = Pages::default().with("/", move |request| {
            let pages = current.pages().clone();
            async move { pages.answer(request).await }
        });
        serve("probes", listener, every, Bounds::default())?;
        Ok(porch)
    }

    /// Alive, and not ready yet: for this reason.
    #[cfg_attr(not(any(feature = "aws", test)), expect(dead_code, reason = "only AWS is waited for"))]
    pub(crate) fn waits(&self, why: &str) {
        self.show(say_waiting(why));
    }

    pub(crate) fn show(&self, pages: Pages) {
        *self.pages() = pages;
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_controllers::shell::Reply;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    fn page(port: u16, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split_whitespace().nth(1).unwrap().parse().unwrap(), answer)
    }

    #[test]
    fn who_waits_is_alive_and_says_for_what_and_who_has_begun_shows_its_own_pages() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let porch = Porch::open(listener).unwrap();
        assert_eq!((page(port, "/healthz").0, page(port, "/readyz").0), (200, 500));
        porch.waits("EC2 asks to slow down");
        let (status, said) = page(port, "/readyz");
        assert!(status == 500 && said.contains("[-]EC2 asks to slow down"), "{said}");
        porch.show(Pages::default().with("/readyz", |_| async { Reply::text(200, "ok") }));
        assert_eq!((page(port, "/readyz").0, page(port, "/healthz").0), (200, 404));
    }
}
