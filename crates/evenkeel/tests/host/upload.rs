//! Data for a VM, whose application compares it before it answers: if promised data does not come, both ends stand
//! still.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use evenkeel_testbed::place::ip;
use evenkeel_testbed::vm::Vm;
use serde_json::Value;

use crate::bed::{Host, LIMIT, SERVER, pattern};

/// vSnoop for VMs without an agent in them.
pub const VSNOOP: &str = "[vsnoop]\nmode = \"enforce\"\nendpoint = \"observed\"";

/// What is sent. A round that has been answered leaves nothing on its way, so the VM has caught up: the next round is
/// the surest to be acknowledged early.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests, each of which waits for its answer.
    pub rounds: usize,
    /// Bytes of each request: some segments, for which the VM's first window has memory.
    pub round_bytes: usize,
    /// Bytes of one more request, at the end.
    pub bulk_bytes: usize,
    /// Makes the data differ from that of another upload.
    pub seed: usize,
}

impl Load {
    /// Twenty rounds of 8 KB, and 2 MB.
    pub const USUAL: Self = Self { rounds: 20, round_bytes: 8 << 10, bulk_bytes: 2 << 20, seed: 0 };

    fn parts(self) -> impl Iterator<Item = Vec<u8>> {
        let sizes = std::iter::repeat_n(self.round_bytes, self.rounds).chain([self.bulk_bytes]);
        let parts = sizes.enumerate();
        parts.map(move |(number, bytes)| (0..bytes).map(|i| pattern(i + number + self.seed)).collect())
    }
}

/// One connection, which stays open until this is dropped.
#[derive(Debug)]
pub struct Upload {
    is_done: Receiver<()>,
    close: Option<Sender<()>>,
    ends: Vec<JoinHandle<()>>,
}

impl Upload {
    /// `receiver` listens at `at`, and then `sender` connects to `to`: the same unless addresses are translated.
    pub fn start(receiver: &Vm, at: SocketAddr, sender: &Vm, to: SocketAddr, load: Load) -> Self {
        let (ready, is_ready) = channel();
        let receiving = receiver.spawn(move || {
            let listener = TcpListener::bind(at).unwrap();
            ready.send(()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            for part in load.parts() {
                let mut data = vec![0; part.len()];
                stream.read_exact(&mut data).expect("data that was acknowledged did not come");
                assert!(data == part, "a transfer came damaged");
                stream.write_all(&[1]).unwrap();
            }
            let _ = stream.read(&mut [0]);
        });
        is_ready.recv().unwrap();
        let (done, is_done) = channel();
        let (close, is_closing) = channel::<()>();
        let sending = sender.spawn(move || {
            let mut stream = TcpStream::connect_timeout(&to, LIMIT).expect("a connection failed");
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.set_write_timeout(Some(LIMIT)).unwrap();
            for part in load.parts() {
                stream.write_all(&part).expect("a transfer stands still");
                stream.read_exact(&mut [0]).expect("a transfer stands still");
            }
            done.send(()).unwrap();
            let _ = is_closing.recv();
        });
        Self { is_done, close: Some(close), ends: vec![receiving, sending] }
    }

    /// Waits until the receiver has it all.
    pub fn wait(&self) {
        self.is_done.recv().expect("a transfer failed");
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.close.take();
        for end in self.ends.drain(..) {
            let _ = end.join();
        }
    }
}

/// A whole transfer to where `receiver` listens.
pub fn upload(receiver: &Vm, sender: &Vm, at: SocketAddr, load: Load) {
    Upload::start(receiver, at, sender, at, load).wait();
}

/// Where a server of this address listens.
pub fn server(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), SERVER)
}

/// Adds an IPv6 address beside the other, usable at once.
pub fn add_v6(vm: &Vm, address: &'static str) {
    vm.spawn(move || ip(&format!("addr add {address}/64 dev eth0 nodad"))).join().unwrap();
}

/// Connections whose VM listens there.
pub fn flows_at(host: &Host, local: SocketAddr) -> Vec<Value> {
    let flows = host.ask(&["flows"]).unwrap();
    let is_wanted = |flow: &&Value| flow["tuple"].as_str().unwrap().starts_with(&format!("{local}-"));
    flows["flows"].as_array().unwrap().iter().filter(is_wanted).cloned().collect()
}
