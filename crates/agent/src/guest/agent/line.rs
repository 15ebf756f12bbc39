//! The guest's side of the channel as a connection: found, opened, lost and found again.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_settings::address::GuestAddress;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, SockaddrStorage, VsockAddr, accept4, bind, getpeername,
    listen, setsockopt, socket, sockopt,
};
use tokio::io::unix::AsyncFd;

use crate::channel::{ChannelLog, Pipe, open_device};

/// Where the kernel has the names of virtio-serial ports.
const PORTS: &str = "/sys/class/virtio-ports";
/// Time between two attempts.
const RETRY: Duration = Duration::from_millis(200);

/// Where connections come from.
pub(super) struct Line {
    address: GuestAddress,
    listener: Option<AsyncFd<OwnedFd>>,
    trouble: Option<String>,
    /// Log lines about connections that were refused.
    refusals: ChannelLog,
}

impl Line {
    /// Nothing is opened yet.
    pub fn new(address: GuestAddress) -> Self {
        Self { address, listener: None, trouble: None, refusals: ChannelLog::new(Instant::now()) }
    }

    /// Where it is.
    pub fn address(&self) -> &GuestAddress {
        &self.address
    }

    /// The next connection. Over a socket, a new one replaces the present one; a virtio-serial port has only one.
    pub async fn next(&mut self, has_one: bool) -> Pipe {
        if has_one && matches!(self.address, GuestAddress::VirtioSerial(_)) {
            return std::future::pending().await;
        }
        loop {
            let outcome = match &self.address {
                GuestAddress::VirtioSerial(name) => find(Path::new(PORTS), name).and_then(|path| {
                    open_device(&path)
                        .map_err(|error| io::Error::other(format!("cannot open {}: {error}", path.display())))
                }),
                GuestAddress::Vsock { .. } | GuestAddress::Tcp { .. } => self.accept().await,
            };
            match outcome {
                Ok(pipe) => {
                    self.trouble = None;
                    return pipe;
                }
                Err(error) => {
                    let why = error.to_string();
                    if self.trouble.as_ref() != Some(&why) {
                        tracing::warn!(channel = %self.address, "no channel: {why}");
                        self.trouble = Some(why);
                    }
                    self.listener = None;
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn accept(&mut self) -> io::Result<Pipe> {
        if self.listener.is_none() {
            let listener = listen_at(&self.address)?;
            // SAFETY: the descriptor is owned by what waits for it, and so open as long as that.
            self.listener = Some(unsafe { AsyncFd::register(listener) }.map_err(io::Error::from)?);
        }
        let Some(listener) = &self.listener else { return Err(io::ErrorKind::NotConnected.into()) };
        loop {
            let mut ready = listener.readable().await?;
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let Ok(accepted) = ready.try_io(|fd| Ok(accept4(fd.as_raw_fd(), flags)?)) else { continue };
            // SAFETY: the kernel has just made this descriptor for us.
            let connection = unsafe { OwnedFd::from_raw_fd(accepted?) };
            if let Err(stranger) = check(&self.address, &connection) {
                self.refusals.say(Instant::now(), |left_out| {
                    tracing::warn!(channel = %self.address, left_out, "a connection from {stranger} is refused");
                });
                continue;
            }
            return Pipe::new(connection);
        }
    }
}

fn listen_at(address: &GuestAddress) -> io::Result<OwnedFd> {
    let (family, at): (_, Box<dyn SockaddrLike>) = match address {
        GuestAddress::Vsock { port } => (AddressFamily::Vsock, Box::new(VsockAddr::new(libc::VMADDR_CID_ANY, *port))),
        GuestAddress::Tcp { listen, .. } => {
            let family = if listen.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
            (family, Box::new(SockaddrStorage::from(*listen)))
        }
        GuestAddress::VirtioSerial(_) => return Err(Errno::EINVAL.into()),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    bind(fd.as_raw_fd(), at.as_ref())?;
    listen(&fd, Backlog::new(4)?)?;
    Ok(fd)
}

/// Checks that a connection comes from the host's address. The error says where it comes from instead.
fn check(address: &GuestAddress, connection: &OwnedFd) -> Result<(), String> {
    let peer: SockaddrStorage =
        getpeername(connection.as_raw_fd()).map_err(|errno| format!("somebody who is gone ({errno})"))?;
    match address {
        GuestAddress::Vsock { .. } => match peer.as_vsock_addr() {
            Some(peer) if peer.cid() == libc::VMADDR_CID_HOST => Ok(()),
            Some(peer) => Err(format!("CID {}", peer.cid())),
            None => Err("elsewhere".to_owned()),
        },
        GuestAddress::Tcp { from, .. } => {
            let v4 = peer.as_sockaddr_in().map(|peer| SocketAddr::from(std::net::SocketAddrV4::from(*peer)));
            let v6 = peer.as_sockaddr_in6().map(|peer| SocketAddr::from(std::net::SocketAddrV6::from(*peer)));
            let ip: Option<IpAddr> = v4.or(v6).map(|peer| peer.ip().to_canonical());
            match ip {
                Some(ip) if ip == from.to_canonical() => {
                    // No heartbeat is to wait for another in Nagle's algorithm.
                    let _ = setsockopt(connection, sockopt::TcpNoDelay, &true);
                    Ok(())
                }
                Some(ip) => Err(ip.to_string()),
                None => Err("elsewhere".to_owned()),
            }
        }
        GuestAddress::VirtioSerial(_) => Ok(()),
    }
}

/// The device of the virtio-serial port with this name.
pub(super) fn find(ports: &Path, name: &str) -> io::Result<PathBuf> {
    let mut names = Vec::new();
    for port in fs::read_dir(ports).into_iter().flatten().flatten() {
        let Ok(own) = fs::read_to_string(port.path().join("name")) else { continue };
        let own = own.trim().to_owned();
        if own == name {
            return Ok(Path::new("/dev").join(port.file_name()));
        }
        names.push(own);
    }
    let there =
        if names.is_empty() { "there is none at all".to_owned() } else { format!("there is {}", names.join(", ")) };
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "no virtio-serial port is named {name}; {there} (the VM needs a virtserialport of that name, and the \
             module virtio_console)"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let error = find(directory.path(), "org.evenkeel.0").unwrap_err().to_string();
        assert!(error.contains("none at all"), "{error}");
        for (port, name) in [("vport0p1", "org.qemu.guest_agent.0"), ("vport2p3", "org.evenkeel.0")] {
            fs::create_dir(directory.path().join(port)).unwrap();
            fs::write(directory.path().join(port).join("name"), format!("{name}\n")).unwrap();
        }
        assert_eq!(find(directory.path(), "org.evenkeel.0").unwrap(), Path::new("/dev/vport2p3"));
        let error = find(directory.path(), "org.evenkeel.1").unwrap_err().to_string();
        assert!(error.contains("org.qemu.guest_agent.0"), "{error}");
    }

    #[test]
    fn only_the_host_may_connect() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listen = {
                let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                free.local_addr().unwrap()
            };
            let mut line = Line::new(GuestAddress::Tcp { listen, from: "127.0.0.7".parse().unwrap() });
            let stranger = tokio::task::spawn_blocking(move || {
                loop {
                    match std::net::TcpStream::connect(listen) {
                        Ok(mut stream) => return io::Read::read(&mut stream, &mut [0]).unwrap_or(0),
                        Err(_) => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            });
            tokio::select! {
                _ = line.next(false) => panic!("a stranger was let in"),
                read = stranger => assert_eq!(read.unwrap(), 0, "a stranger is hung up on"),
            }
        });
    }
}
