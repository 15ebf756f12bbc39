//! nginx in a VM.

use std::collections::BTreeSet;
use std::fmt::Write;

use evenkeel_scenario::format::GuestTcp;

use super::task::started;
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{HTTP_PORT, OBJECT_PATH, Op};

/// Where nginx's configuration goes in a VM.
const CONFIG: &str = "/run/nginx/nginx.conf";
/// What it serves.
const FILES: &str = "/run/nginx/files";

/// What differs from one nginx to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Servers behind it, and what holds for them.
    pub upstreams: String,
    /// What it does with which path.
    pub locations: String,
}

impl Site {
    /// nginx takes what clients upload into one file in memory, which each upload replaces. Its answer comes when it
    /// has all of it.
    fn files() -> Self {
        Self { upstreams: String::new(), locations: "location / {\n            dav_methods PUT;\n        }".to_owned() }
    }
}

/// nginx's configuration.
pub fn config(tcp: &GuestTcp, site: &Site) -> String {
    let Site { upstreams, locations } = site;
    let mut listen = format!("{HTTP_PORT} backlog=4096");
    // The kernel doubles what is set. Writing to a String cannot fail.
    if let Some(bytes) = tcp.receive_buffer_bytes {
        let _ = write!(listen, " rcvbuf={}", bytes / 2);
    }
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path /run/nginx/{kind};\n"))
        .concat();
    format!(
        "user root;\nworker_processes 1;\nworker_rlimit_nofile 8192;\npid /run/nginx/pid;\nerror_log stderr error;\n\
         events {{\n    worker_connections 4096;\n}}\n\
         http {{\n    access_log off;\n    client_max_body_size 0;\n    client_body_timeout 600;\n    \
         keepalive_requests 1000000000;\n    keepalive_timeout 600;\n{temporary}    {upstreams}    \
         server {{\n        listen {listen};\n        root {FILES};\n        {locations}\n    }}\n}}\n"
    )
}

/// Makes a file of each of these sizes for nginx.
pub fn make_files(vm: &Vm, sizes_bytes: &BTreeSet<u32>) -> Result<(), LabError> {
    let directory = format!("{FILES}{OBJECT_PATH}");
    let files = sizes_bytes.iter().map(|bytes| format!("head -c {bytes} /dev/zero >{directory}{bytes}\n"));
    vm.shell(&format!("mkdir -p {directory}\n{}", files.collect::<String>())).map(drop)
}

/// Starts nginx with files in a VM; its task.
pub fn start_files(vm: &Vm, tcp: &GuestTcp) -> Result<u64, LabError> {
    start(vm, &config(tcp, &Site::files()))
}

/// Starts nginx with this configuration in a VM; its task.
pub fn start(vm: &Vm, config: &str) -> Result<u64, LabError> {
    vm.shell(&format!("mkdir -p {FILES} /var/log/nginx /var/lib/nginx"))?;
    vm.call(Op::WriteFile { path: CONFIG.to_owned(), text: config.to_owned() })?;
    let argv = ["nginx", "-e", "stderr", "-c", CONFIG, "-g", "daemon off;"].map(str::to_owned).to_vec();
    let task = started(vm, Op::Spawn { argv })?;
    vm.shell(&format!(
        "i=0; until ss -Hltn sport = :{HTTP_PORT} | grep -q .; do i=$((i+1)); [ $i -lt 200 ]; sleep 0.05; done"
    ))?;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_gets_the_groups_receive_buffer() {
        let config = |tcp: &GuestTcp| config(tcp, &Site::files());
        assert!(config(&GuestTcp::default()).contains("listen 80 backlog=4096;"));
        let tcp = GuestTcp { receive_buffer_bytes: Some(65_536), ..GuestTcp::default() };
        assert!(config(&tcp).contains("listen 80 backlog=4096 rcvbuf=32768;"));
    }
}
