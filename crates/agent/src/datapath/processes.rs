//! Processes of the host, as far as VMs are concerned: who has a tap open, and which threads it has.

use std::io::Read;

use libbpf_rs::{Iter, Link, Object, ObjectBuilder};

use super::error::DatapathError;
use super::intf;
use crate::common::bytes::from_bytes;
use crate::netns;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vcpus.bpf.o"));

/// The programs that look.
#[derive(Debug)]
pub struct Processes {
    taps: Link,
    threads: Link,
    _object: Object,
}

/// A process that has a tap open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// What the tap is known by as a port.
    pub port: u32,
}

/// What they saw.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Processes that have taps open, of all network namespaces where ports may be.
    pub holders: Vec<Holder>,
    /// All threads.
    pub threads: Vec<intf::ek_thread>,
}

impl Processes {
    /// Loads them.
    ///
    /// # Errors
    /// [`DatapathError::Bpf`] if the kernel does not take them, for example because it lacks the types (BTF) of `tun`.
    pub fn open() -> Result<Self, DatapathError> {
        let failed = |what: &str, error: libbpf_rs::Error| DatapathError::bpf(what, &error);
        let open = ObjectBuilder::default()
            .name("evenkeel_vcpus")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(|error| failed("cannot read the programs that look for VMs", error))?;
        let object =
            open.load().map_err(|error| failed("the kernel does not take the programs that look for VMs", error))?;
        let attach = |name: &str| {
            let program = object.progs_mut().find(|program| program.name() == name).expect("the object has both");
            program.attach().map_err(|error| failed("cannot attach the programs that look for VMs", error))
        };
        Ok(Self { taps: attach("taps")?, threads: attach("threads")?, _object: object })
    }

    /// Goes over all processes.
    ///
    /// # Errors
    /// [`DatapathError`] if the kernel does not let it.
    pub fn look(&self) -> Result<Seen, DatapathError> {
        let own =
            netns::own_inode().map_err(|error| DatapathError::io("cannot look at this network namespace", error))?;
        let holders = all::<intf::ek_holder>(&self.taps)?.into_iter().filter_map(|holder| {
            let port = netns::number_in(holder.namespace, own, holder.ifindex)?;
            Some(Holder { process: holder.process, port })
        });
        Ok(Seen { holders: holders.collect(), threads: all(&self.threads)? })
    }
}

/// What a thread is called.
pub fn thread_name(thread: &intf::ek_thread) -> String {
    let bytes: Vec<u8> = thread.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All records that an iterator's program writes.
fn all<T: Copy>(link: &Link) -> Result<Vec<T>, DatapathError> {
    const WHAT: &str = "cannot go over the host's processes";
    let mut iter = Iter::new(link).map_err(|error| DatapathError::bpf(WHAT, &error))?;
    let mut bytes = Vec::new();
    iter.read_to_end(&mut bytes).map_err(|error| DatapathError::io(WHAT, error))?;
    Ok(bytes.chunks_exact(size_of::<T>()).filter_map(from_bytes).collect())
}
