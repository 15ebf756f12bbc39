//! TCP sockets of the workload, with the sizes the scenario asks for.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, Backlog, SetSockOpt, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect as connect_to,
    getsockopt, listen as listen_on, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal};

use crate::proto::SocketSettings;

/// How long a connection may take; three SYNs may be lost in that time.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A listening socket. Buffer sizes are set before it listens, because the window scale is chosen from them at the
/// handshake; accepted sockets inherit them.
pub fn listen(at: SocketAddr, settings: SocketSettings) -> anyhow::Result<TcpListener> {
    let fd = new(at, settings)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true).context("SO_REUSEADDR")?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at)).with_context(|| format!("cannot bind {at}"))?;
    listen_on(&fd, Backlog::new(1024)?).with_context(|| format!("cannot listen on {at}"))?;
    Ok(TcpListener::from(fd))
}

/// A connection.
pub fn connect(to: SocketAddr, settings: SocketSettings) -> anyhow::Result<TcpStream> {
    let fd = new(to, settings)?;
    // Linux applies the time limit for sending to `connect` too.
    let limit = TimeVal::new(i64::try_from(CONNECT_LIMIT.as_secs())?, 0);
    setsockopt(&fd, sockopt::SendTimeout, &limit).context("SO_SNDTIMEO")?;
    connect_to(fd.as_raw_fd(), &SockaddrStorage::from(to)).with_context(|| format!("cannot connect to {to}"))?;
    setsockopt(&fd, sockopt::SendTimeout, &TimeVal::new(0, 0)).context("SO_SNDTIMEO")?;
    Ok(TcpStream::from(fd))
}

/// Begins to connect, without waiting for it: the socket is writable when it is connected.
pub fn begin_connect(to: SocketAddr, settings: SocketSettings) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::from(new(to, settings)?);
    stream.set_nonblocking(true).context("O_NONBLOCK")?;
    stream.set_nodelay(true).context("TCP_NODELAY")?;
    match connect_to(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(nix::errno::Errno::EINPROGRESS) => Ok(stream),
        Err(error) => Err(error).with_context(|| format!("cannot connect to {to}")),
    }
}

/// Makes close throw away what is unsent and reset the connection.
pub fn reset_on_close(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })
}

/// Whether an error only says that the other end has closed or reset the connection, as clients do when they are
/// stopped.
pub fn is_hangup(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof | ErrorKind::NotConnected
    )
}

fn new(address: SocketAddr, settings: SocketSettings) -> anyhow::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd =
        socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp).context("cannot make a socket")?;
    if let Some(bytes) = settings.receive_buffer_bytes {
        set_buffer(&fd, bytes, sockopt::RcvBufForce, sockopt::RcvBuf).context("SO_RCVBUF")?;
        check(getsockopt(&fd, sockopt::RcvBuf)?, bytes).context("SO_RCVBUF")?;
    }
    if let Some(bytes) = settings.send_buffer_bytes {
        set_buffer(&fd, bytes, sockopt::SndBufForce, sockopt::SndBuf).context("SO_SNDBUF")?;
        check(getsockopt(&fd, sockopt::SndBuf)?, bytes).context("SO_SNDBUF")?;
    }
    Ok(fd)
}

/// Sets half of `bytes`, which the kernel doubles; past the sysctl limit where that is allowed.
fn set_buffer(
    fd: &impl AsFd,
    bytes: u32,
    force: impl SetSockOpt<Val = usize>,
    plain: impl SetSockOpt<Val = usize>,
) -> nix::Result<()> {
    let half = (bytes / 2) as usize;
    setsockopt(fd, force, &half).or_else(|_| setsockopt(fd, plain, &half))
}

/// Whether the kernel took the size (an odd one is rounded down).
fn check(got: usize, asked: u32) -> anyhow::Result<()> {
    anyhow::ensure!(got == (asked & !1) as usize, "{asked} bytes asked for, the kernel gives {got}");
    Ok(())
}

/// Waits up to `limit` until a socket is ready; returns what each is ready for, in their order.
pub fn wait<'a>(
    sockets: impl Iterator<Item = (BorrowedFd<'a>, PollFlags)>,
    limit: Duration,
) -> anyhow::Result<Vec<PollFlags>> {
    let mut polled: Vec<PollFd<'_>> = sockets.map(|(fd, events)| PollFd::new(fd, events)).collect();
    match ppoll(&mut polled, Some(TimeSpec::from_duration(limit)), None) {
        Ok(_) => {}
        Err(nix::errno::Errno::EINTR) => return Ok(vec![PollFlags::empty(); polled.len()]),
        Err(error) => return Err(error).context("ppoll"),
    }
    Ok(polled.iter().map(|p| p.revents().unwrap_or(PollFlags::empty())).collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn both_ends_get_the_sizes() {
        let settings = SocketSettings { receive_buffer_bytes: Some(65_536), send_buffer_bytes: Some(131_072) };
        let listener = listen(ANY, settings).expect("listens");
        let near = connect(listener.local_addr().expect("bound"), settings).expect("connects");
        let (far, _) = listener.accept().expect("accepts");
        for stream in [near, far] {
            assert_eq!(getsockopt(&stream, sockopt::RcvBuf), Ok(65_536));
            assert_eq!(getsockopt(&stream, sockopt::SndBuf), Ok(131_072));
        }
    }

    #[test]
    fn a_size_the_kernel_does_not_take_is_an_error() {
        let error = listen(ANY, SocketSettings { receive_buffer_bytes: Some(100), ..SocketSettings::default() })
            .expect_err("too small");
        assert!(format!("{error:#}").starts_with("SO_RCVBUF: 100 bytes asked for"), "{error:#}");
    }

    #[test]
    fn a_closed_port_is_named() {
        let free = listen(ANY, SocketSettings::default()).expect("listens").local_addr().expect("bound");
        let error = connect(free, SocketSettings::default()).expect_err("nobody listens");
        assert!(error.to_string().contains(&free.to_string()));
    }
}
