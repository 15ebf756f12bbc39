//! nginx in a VM.

use std::collections::BTreeSet;

use super::members::Members;
use super::task::started;
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{ANY_OBJECT, HTTP_PORT, OBJECT_PATH, Op, port_of};

/// Where the nginx of the workload at this place has its files in a VM: its configuration, and what it serves.
fn directory(place: u8) -> String {
    format!("/run/nginx/{place}")
}

/// What differs from one nginx to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Servers behind it, and what holds for them.
    pub upstreams: String,
    /// What it does with which path.
    pub locations: String,
}

impl Site {
    /// nginx with files. It puts what clients upload into one file in memory, which each upload replaces, and answers
    /// when it has all of it.
    fn files() -> Self {
        Self { upstreams: String::new(), locations: "location / {\n            dav_methods PUT;\n        }".to_owned() }
    }
}

/// nginx's configuration in the workload at this place.
fn config(place: u8, site: &Site) -> String {
    let Site { upstreams, locations } = site;
    let (directory, port) = (directory(place), port_of(HTTP_PORT, place));
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {directory}/{kind};\n"))
        .concat();
    format!(
        "user root;\nworker_processes 1;\nworker_rlimit_nofile 8192;\npid {directory}/pid;\nerror_log stderr error;\n\
         events {{\n    worker_connections 4096;\n}}\n\
         http {{\n    access_log off;\n    client_max_body_size 0;\n    client_body_timeout 600;\n    \
         keepalive_requests 1000000000;\n    keepalive_timeout 600;\n{temporary}    {upstreams}    \
         server {{\n        listen {port} backlog=4096;\n        root {directory}/files;\n        \
         {locations}\n    }}\n}}\n"
    )
}

/// Makes a file of each of these sizes for the workload's nginx.
pub fn make_files(members: &Members, vm: &Vm, sizes_bytes: &BTreeSet<u32>) -> Result<(), LabError> {
    let directory = format!("{}/files{OBJECT_PATH}", directory(members.place));
    let files = sizes_bytes.iter().map(|bytes| format!("head -c {bytes} /dev/zero >{directory}{bytes}\n"));
    vm.shell(&format!("mkdir -p {directory}\n{}", files.collect::<String>())).map(drop)
}

/// Makes a file of `bytes` bytes, of which a range can be asked for. It takes no memory: all of it is a hole.
pub fn make_any_object(members: &Members, vm: &Vm, bytes: u64) -> Result<(), LabError> {
    let directory = format!("{}/files{OBJECT_PATH}", directory(members.place));
    vm.shell(&format!("mkdir -p {directory}\ntruncate -s {bytes} {directory}{ANY_OBJECT}\n")).map(drop)
}

/// Starts nginx with files in a VM; returns its task.
pub fn start_files(members: &Members, vm: &Vm) -> Result<u64, LabError> {
    start(members, vm, &Site::files())
}

/// Starts nginx in a VM; returns its task.
pub fn start(members: &Members, vm: &Vm, site: &Site) -> Result<u64, LabError> {
    let directory = directory(members.place);
    vm.shell(&format!("mkdir -p {directory}/files /var/log/nginx /var/lib/nginx"))?;
    let path = format!("{directory}/nginx.conf");
    vm.call(Op::WriteFile { path: path.clone(), text: config(members.place, site) })?;
    let argv = ["nginx", "-e", "stderr", "-c", &path, "-g", "daemon off;"].map(str::to_owned).to_vec();
    let task = started(vm, Op::Spawn { argv })?;
    let port = members.port(HTTP_PORT);
    vm.shell(&format!(
        "i=0; until ss -Hltn sport = :{port} | grep -q .; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done"
    ))?;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workloads_nginx_has_a_port_and_files_of_its_own() {
        let config = config(3, &Site::files());
        assert!(config.contains("listen 83 backlog=4096;") && config.contains("root /run/nginx/3/files;"), "{config}");
        assert!(config.contains("pid /run/nginx/3/pid;") && !config.contains("/run/nginx/p"), "{config}");
    }
}
