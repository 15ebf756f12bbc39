//! A wire between the host's channels and QEMU that can be stopped, and that can carry what nobody sent.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The wire.
pub struct Relay {
    /// Where the host's end connects.
    pub path: PathBuf,
    /// Nothing gets through.
    frozen: Arc<AtomicBool>,
    /// Bytes of noise that are still to be sent, in both directions together.
    noise: Arc<AtomicU64>,
}

impl Relay {
    /// From a socket of its own to QEMU's.
    pub fn new(directory: &Path, qemu: &Path) -> Self {
        let path = directory.join("relay");
        let listener = UnixListener::bind(&path).unwrap();
        let (frozen, noise) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let relay = Self { path, frozen: Arc::clone(&frozen), noise: Arc::clone(&noise) };
        let qemu = qemu.to_owned();
        std::thread::spawn(move || {
            for host in listener.incoming() {
                let (host, guest) = (host.unwrap(), UnixStream::connect(&qemu).unwrap());
                let pairs = [(host.try_clone().unwrap(), guest.try_clone().unwrap()), (guest, host)];
                for (from, to) in pairs {
                    let (frozen, noise) = (Arc::clone(&frozen), Arc::clone(&noise));
                    std::thread::spawn(move || carry(from, to, &frozen, &noise));
                }
            }
        });
        relay
    }

    /// Stops everything, or lets it go on; what was sent meanwhile arrives then.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::SeqCst);
    }

    /// Sends noise in both directions.
    pub fn noise(&self, bytes: u64) {
        self.noise.store(2 * bytes, Ordering::SeqCst);
    }
}

fn carry(mut from: UnixStream, mut to: UnixStream, frozen: &AtomicBool, noise: &AtomicU64) {
    let mut buffer = [0; 4096];
    from.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    loop {
        if frozen.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let wanted = noise.swap(0, Ordering::SeqCst);
        if wanted > 0 {
            // The other direction's half.
            noise.fetch_add(wanted / 2, Ordering::SeqCst);
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .take(wanted as usize / 2)
            .collect();
            let _ = to.write_all(&bytes);
            if wanted < 4 {
                noise.store(0, Ordering::SeqCst);
            }
        }
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if to.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}
