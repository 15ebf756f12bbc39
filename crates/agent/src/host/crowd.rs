//! Bounds how many clients are served at once: a new one evicts the client that has been silent longest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::task::AbortHandle;

/// The clients that are served now.
#[derive(Debug, Clone)]
pub struct Crowd {
    most: usize,
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last number that a client or a silence was given: later ones are larger.
    next: u64,
    clients: BTreeMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    task: Option<AbortHandle>,
    /// Since when it is silent; nothing while it is answered.
    silent: Option<u64>,
}

/// A client's own place, until it is dropped.
#[derive(Debug)]
pub struct Admission {
    number: u64,
    inner: Rc<RefCell<Inner>>,
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The client to evict: the one that has been silent longest, or, if none is silent, the one that came first.
    fn last(&self) -> Option<u64> {
        let order = |(number, client): &(&u64, &Client)| (client.silent.is_none(), client.silent.unwrap_or(**number));
        self.clients.iter().min_by_key(order).map(|(number, _)| *number)
    }
}

impl Crowd {
    /// Has room for `most` clients.
    pub fn new(most: usize) -> Self {
        Self { most, inner: Rc::default() }
    }

    /// Serves another client; needs a [`LocalSet`](tokio::task::LocalSet).
    pub fn admit<F: Future<Output = ()> + 'static>(&self, serve: impl FnOnce(Admission) -> F) {
        let number = {
            let mut inner = self.inner.borrow_mut();
            while inner.clients.len() >= self.most {
                let Some(client) = inner.last().and_then(|last| inner.clients.remove(&last)) else { break };
                if let Some(task) = client.task {
                    task.abort();
                }
            }
            let number = inner.number();
            inner.clients.insert(number, Client { task: None, silent: Some(number) });
            number
        };
        let task = tokio::task::spawn_local(serve(Admission { number, inner: Rc::clone(&self.inner) })).abort_handle();
        if let Some(client) = self.inner.borrow_mut().clients.get_mut(&number) {
            client.task = Some(task);
        }
    }
}

impl Admission {
    /// The client has asked, and is answered.
    pub fn is_heard(&self) {
        self.set(|_| None);
    }

    /// The client has its answer.
    pub fn is_silent(&self) {
        self.set(|inner| Some(inner.number()));
    }

    fn set(&self, silent: impl FnOnce(&mut Inner) -> Option<u64>) {
        let mut inner = self.inner.borrow_mut();
        let silent = silent(&mut inner);
        if let Some(client) = inner.clients.get_mut(&self.number) {
            client.silent = silent;
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.inner.borrow_mut().clients.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;

    /// A client that does what it is told, and ends when nobody tells it any more.
    fn client(crowd: &Crowd, there: &Rc<Cell<usize>>) -> (oneshot::Sender<()>, Rc<RefCell<Option<Admission>>>) {
        struct There(Rc<Cell<usize>>);
        impl Drop for There {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let (sender, end) = oneshot::channel();
        let shared = Rc::new(RefCell::new(None));
        let mine = Rc::clone(&shared);
        there.set(there.get() + 1);
        let there = There(Rc::clone(there));
        crowd.admit(|place| {
            *mine.borrow_mut() = Some(place);
            async move {
                let _ = end.await;
                drop((mine.borrow_mut().take(), there));
            }
        });
        (sender, shared)
    }

    #[test]
    fn whoever_is_silent_for_longest_makes_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (crowd, there) = (Crowd::new(3), Rc::new(Cell::new(0)));
            let mut clients: Vec<_> = (0..3).map(|_| client(&crowd, &there)).collect();
            let place = |clients: &[(_, Rc<RefCell<Option<Admission>>>)], at: usize, act: fn(&Admission)| {
                act(clients[at].1.borrow().as_ref().unwrap());
            };
            // The first is being answered and the second was, so the third has been silent longest.
            place(&clients, 0, Admission::is_heard);
            place(&clients, 1, Admission::is_heard);
            place(&clients, 1, Admission::is_silent);
            clients.push(client(&crowd, &there));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert_eq!(there.get(), 3);
            assert!(clients[2].0.is_closed() && !clients[0].0.is_closed() && !clients[1].0.is_closed());
            // If all are being answered, the first goes.
            place(&clients, 1, Admission::is_heard);
            place(&clients, 3, Admission::is_heard);
            clients.push(client(&crowd, &there));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert!(clients[0].0.is_closed() && !clients[1].0.is_closed());
            // A client that ends by itself frees its room.
            clients.drain(..2);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert_eq!((there.get(), crowd.inner.borrow().clients.len()), (2, 2));
        });
    }
}
