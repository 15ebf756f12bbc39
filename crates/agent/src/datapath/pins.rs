//! What is pinned for the next agent, below a directory in a bpf file system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libbpf_rs::MapHandle;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::error::DatapathError;
use super::intf;
use super::map::lookup_bytes;
use crate::common::bytes::from_bytes;

/// Links, by device index and program.
const LINKS: &str = "links";

/// Makes the directory, and that of links in it.
pub(super) fn make(pin_dir: &Path) -> Result<(), DatapathError> {
    let failed = |error| DatapathError::io(format!("cannot make {}", pin_dir.display()), error);
    let parent = pin_dir.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    if !statfs(parent).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
        return Err(DatapathError::NoBpfFs { dir: pin_dir.to_owned() });
    }
    fs::create_dir_all(pin_dir.join(LINKS)).map_err(failed)
}

/// Whether an agent before this one has pinned its maps, and this one takes them over.
///
/// # Errors
/// [`DatapathError::OtherVersion`] if they are of another version, and [`DatapathError::Bpf`].
pub fn are_there(pin_dir: &Path) -> Result<bool, DatapathError> {
    let host = pin_dir.join("host");
    if !host.exists() {
        return Ok(false);
    }
    let map = MapHandle::from_pinned_path(host);
    let map = map.map_err(|error| DatapathError::bpf("cannot open the map host", &error))?;
    let host = lookup_bytes(&map, &0u32.to_ne_bytes())?;
    let found = host.as_deref().and_then(from_bytes::<intf::ek_host>).map_or(0, |host| host.version);
    // 0: an agent was killed after it loaded the programs and before it set the host's settings.
    if found != 0 && found != intf::EK_INTF_VERSION {
        return Err(DatapathError::OtherVersion { found });
    }
    Ok(true)
}

/// Where the link of a port's program is.
pub(super) fn link(pin_dir: &Path, ifindex: u32, program: &str) -> PathBuf {
    pin_dir.join(LINKS).join(format!("{ifindex}-{program}"))
}

/// Devices that links are pinned for, whether they are still there or not.
pub(super) fn ports(pin_dir: &Path) -> Result<Vec<u32>, DatapathError> {
    let links = pin_dir.join(LINKS);
    let entries = match fs::read_dir(&links).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(DatapathError::io(format!("cannot read {}", links.display()), error)),
    };
    let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut ports: Vec<u32> = names.filter_map(|name| name.split('-').next()?.parse().ok()).collect();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

/// Whether an agent before this one has put programs on ports by clsact.
pub(super) fn has_filters(pin_dir: &Path) -> bool {
    let entries = fs::read_dir(pin_dir.join(LINKS)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| name.ends_with("-filter"))
}

/// Removes a pin. One that is not there is as good as removed.
pub(super) fn remove(path: &Path) -> Result<(), DatapathError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DatapathError::io(format!("cannot remove {}", path.display()), error))
        }
        _ => Ok(()),
    }
}
