//! Filters of tc's at the qdisc clsact, which put programs on devices of kernels without tcx. A device has room for
//! one filter of evenkeel's at each side. Devices are given by the numbers of ports ([`netns`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::netlink::{Message, TCA_KIND, TCA_OPTIONS, TCMSG_BYTES, attribute, messages, request, route, tcmsg, u32_at};
use crate::netns;

/// The priority of evenkeel's filters: behind those whose priority somebody chose, which is usually a small number, and
/// before those for which the kernel chose one, from 49152 downwards.
const PRIORITY: u32 = 0x656b;
/// Number of the filter, among those of the same priority.
const HANDLE: u32 = 0x656b;
/// linux/pkt_sched.h, `TC_H_CLSACT` with `TC_H_MIN_INGRESS` and `TC_H_MIN_EGRESS`.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// `TC_H_CLSACT`, which is `TC_H_INGRESS`, too: the place that the qdiscs of both names share.
const PLACE: u32 = 0xffff_fff1;
/// linux/pkt_cls.h
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
/// An answer takes microseconds, unless somebody changes devices meanwhile.
const TIMEOUT: Duration = Duration::from_secs(1);
/// More than the kernel puts into one read of a dump.
const READ_BYTES: usize = 1 << 15;

/// A side of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Packets that leave by the device.
    Egress,
    /// Packets that come in there.
    Ingress,
}

impl Side {
    fn parent(self) -> u32 {
        match self {
            Self::Egress => EGRESS,
            Self::Ingress => INGRESS,
        }
    }

    fn point(self) -> libbpf_sys::bpf_tc_attach_point {
        match self {
            Self::Egress => libbpf_sys::BPF_TC_EGRESS,
            Self::Ingress => libbpf_sys::BPF_TC_INGRESS,
        }
    }
}

/// A filter, of whatever kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Lower ones see a packet first.
    priority: u32,
    handle: u32,
    /// The kernel's number of its program; `None` if the filter is no program.
    pub(crate) program: Option<u32>,
    /// Its program's name, as its owner calls it.
    name: String,
}

impl Filter {
    /// Whether it stands where evenkeel's do.
    pub(crate) fn is_at_own_place(&self) -> bool {
        (self.priority, self.handle) == (PRIORITY, HANDLE)
    }

    /// Whether libbpf has put a program of this name there, as `NAME:[NUMBER]`.
    pub(crate) fn has_program(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.starts_with(":["))
    }
}

/// The outcome of a call of libbpf's, which returns 0 or a negative error number.
pub(crate) fn outcome(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

fn hook(number: u32, point: libbpf_sys::bpf_tc_attach_point) -> io::Result<libbpf_sys::bpf_tc_hook> {
    Ok(libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex: i32::try_from(netns::index(number)).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        attach_point: point,
        ..Default::default()
    })
}

fn options() -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as libbpf_sys::size_t,
        handle: HANDLE,
        priority: PRIORITY,
        ..Default::default()
    }
}

/// Runs `ask` with libbpf's messages off: a mere question is nothing to complain about.
pub(crate) fn quietly<T>(ask: impl FnOnce() -> T) -> T {
    let before = libbpf_rs::set_print(None);
    let answer = ask();
    libbpf_rs::set_print(before);
    answer
}

/// Makes a device's clsact. False if there is one already, or another qdisc has its place ([`kind`] says which).
pub(crate) fn make(number: u32) -> io::Result<bool> {
    let mut hook = hook(number, libbpf_sys::BPF_TC_INGRESS)?;
    let _there = netns::enter(number)?;
    // SAFETY: the structure is of the size that it says.
    match quietly(|| outcome(unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) })) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The kind of the qdisc in clsact's place; an error if none is there.
pub(crate) fn kind(number: u32) -> io::Result<String> {
    let _there = netns::enter(number)?;
    let socket = route(TIMEOUT)?;
    // A single request is answered only if it asks for its echo.
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ECHO) as u16;
    socket.send(&request(libc::RTM_GETQDISC, flags, 1, &tcmsg(netns::index(number), PLACE)), 0)?;
    let mut bytes = Vec::with_capacity(READ_BYTES);
    socket.recv(&mut bytes, 0)?;
    let message = messages(&bytes).next().flatten().ok_or(io::ErrorKind::InvalidData)?;
    if i32::from(message.kind) == libc::NLMSG_ERROR {
        return Err(error_of(&message));
    }
    let kind = message.body.get(TCMSG_BYTES..).and_then(|attributes| attribute(attributes, TCA_KIND));
    Ok(text(kind.ok_or(io::ErrorKind::InvalidData)?))
}

/// Removes a device's clsact if no filter is in it.
pub(crate) fn remove_empty(number: u32) -> io::Result<()> {
    if !filters(number, Side::Egress)?.is_empty() || !filters(number, Side::Ingress)?.is_empty() {
        return Ok(());
    }
    let mut hook = hook(number, libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS)?;
    let _there = netns::enter(number)?;
    // SAFETY: the structure is of the size that it says.
    outcome(unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) })
}

/// Puts a program at evenkeel's place, or replaces the one that is there, between two packets.
pub(crate) fn put(number: u32, side: Side, program: BorrowedFd<'_>) -> io::Result<()> {
    let (hook, mut options) = (hook(number, side.point())?, options());
    let _there = netns::enter(number)?;
    options.prog_fd = program.as_raw_fd();
    options.flags = libbpf_sys::BPF_TC_F_REPLACE;
    // SAFETY: the structures are of the sizes that they say, and the program is open.
    outcome(unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut options) })
}

/// Takes the program at evenkeel's place off.
pub(crate) fn take(number: u32, side: Side) -> io::Result<()> {
    let (hook, options) = (hook(number, side.point())?, options());
    let _there = netns::enter(number)?;
    // SAFETY: the structures are of the sizes that they say.
    outcome(unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) })
}

/// The filters at a side of a device, in the order in which they see a packet; none if the device is gone.
pub(crate) fn filters(number: u32, side: Side) -> io::Result<Vec<Filter>> {
    let _there = netns::enter(number)?;
    let socket = route(TIMEOUT)?;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    socket.send(&request(libc::RTM_GETTFILTER, flags, 1, &tcmsg(netns::index(number), side.parent())), 0)?;
    let (mut all, mut bytes) = (Vec::new(), Vec::with_capacity(READ_BYTES));
    loop {
        bytes.clear();
        socket.recv(&mut bytes, 0)?;
        for message in messages(&bytes) {
            let message = message.ok_or(io::ErrorKind::InvalidData)?;
            match i32::from(message.kind) {
                libc::NLMSG_DONE => {
                    all.sort_by_key(|filter: &Filter| filter.priority);
                    return Ok(all);
                }
                libc::NLMSG_ERROR => return Err(error_of(&message)),
                _ => all.extend(filter(message.body)),
            }
        }
    }
}

fn error_of(message: &Message<'_>) -> io::Error {
    let number = u32_at(message.body, 0).unwrap_or_default() as i32;
    io::Error::from_raw_os_error(number.wrapping_neg())
}

/// A filter, out of a message about it; `None` if the message only says that a priority is in use.
fn filter(body: &[u8]) -> Option<Filter> {
    let handle = u32_at(body, 8)?;
    let priority = u32_at(body, 16)? >> 16;
    let attributes = body.get(TCMSG_BYTES..)?;
    let options = attribute(attributes, TCA_OPTIONS).unwrap_or_default();
    let program = attribute(options, TCA_BPF_ID).and_then(|number| u32_at(number, 0));
    let name = text(attribute(options, TCA_BPF_NAME).unwrap_or_default());
    (handle != 0).then_some(Filter { priority, handle, program, name })
}

/// A string of C.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests;
