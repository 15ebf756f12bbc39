//! Many packets with one system call, each with its kernel timestamp and its true length.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// Bytes kept of a packet, from the IP header on: the largest IPv6 and TCP headers without extensions fit.
pub const SNAPLEN: usize = 128;
/// Packets of one call.
const BATCH: usize = 64;
/// 64-bit words for control messages; a timestamp takes four.
const CONTROL_WORDS: usize = 8;

/// What the kernel said of one packet.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// CLOCK_REALTIME in nanoseconds; None when the kernel gave none.
    pub t_ns: Option<i64>,
    /// Length before it was cut.
    pub wire_len: usize,
    /// Interface, direction, protocol.
    pub link: &'a libc::sockaddr_ll,
    /// The first bytes.
    pub data: &'a [u8],
}

/// Room for the packets of one call.
#[derive(Debug)]
pub struct Batch {
    links: Vec<libc::sockaddr_ll>,
    controls: Vec<[u64; CONTROL_WORDS]>,
    data: Vec<[u8; SNAPLEN]>,
}

impl Batch {
    /// Empty.
    pub fn new() -> Self {
        // SAFETY: sockaddr_ll is plain integers, for which zero is a value.
        let link = unsafe { std::mem::zeroed() };
        Self { links: vec![link; BATCH], controls: vec![[0; CONTROL_WORDS]; BATCH], data: vec![[0; SNAPLEN]; BATCH] }
    }

    /// Takes what has come, without waiting, and gives each packet to `take`. False when nothing had come.
    ///
    /// # Errors
    /// Those of recvmmsg(2).
    pub fn receive(&mut self, socket: &OwnedFd, mut take: impl FnMut(Received<'_>)) -> io::Result<bool> {
        let mut pieces: Vec<libc::iovec> = self
            .data
            .iter_mut()
            .map(|data| libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: SNAPLEN })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = Vec::with_capacity(BATCH);
        for ((link, control), piece) in self.links.iter_mut().zip(&mut self.controls).zip(&mut pieces) {
            // SAFETY: mmsghdr is integers and pointers, for which zero is a value. (musl has padding fields: no
            // literal.)
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = ptr::from_mut(link).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of_val(control) as _;
            headers.push(header);
        }
        // MSG_TRUNC makes the kernel tell the length before the cut.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: `headers` has BATCH entries, whose pointers lead to buffers of the stated sizes that live to the end
        // of this function.
        let n = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), BATCH as _, flags as _, ptr::null_mut())
        };
        let Ok(n) = usize::try_from(n) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) };
        };
        for (place, header) in headers.iter().take(n).enumerate() {
            let wire_len = header.msg_len as usize;
            take(Received {
                t_ns: timestamp(&header.msg_hdr),
                wire_len,
                link: &self.links[place],
                data: &self.data[place][..wire_len.min(SNAPLEN)],
            });
        }
        Ok(n > 0)
    }
}

/// The SO_TIMESTAMPNS message of a packet.
fn timestamp(header: &libc::msghdr) -> Option<i64> {
    // SAFETY: the kernel has filled in control buffer and length; the macros stay within them.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(found) = message.as_ref() {
            if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_TIMESTAMPNS {
                let time: libc::timespec = ptr::read_unaligned(libc::CMSG_DATA(message).cast());
                return Some(time.tv_sec * 1_000_000_000 + time.tv_nsec);
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}
