//! The web application of three tiers: nginx with an application, PostgreSQL, memcached, nginx with files, and users.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_scenario::format::{Operation, Store, StoreCall};

use super::members::{Members, address};
use super::task::{TaskOf, started};
use super::{memcached, nginx};
use crate::error::LabError;
use crate::host::vm::Vm;
use crate::proto::{APPLICATION_PORT, HTTP_PORT, Op, POSTGRES_PORT, Task, WebCall, WebOperation, WebStore, port_of};

/// How long the application may take to fill the stores.
const FILL_LIMIT: Duration = Duration::from_secs(120);

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Users {
    /// How many, on all VMs.
    pub users: u32,
    /// Mean time between a response and the next request.
    pub think_time_ms: u32,
    /// Whether connections are used again.
    pub keep_alive: bool,
}

/// Starts the servers, and fills the stores.
pub fn serve(members: &Members, keep_alive: bool, operations: &[Operation]) -> Result<Vec<TaskOf>, LabError> {
    // `validate` makes sure that there are four.
    let [(web_index, web), (database_index, database), (cache_index, cache), (files_index, files)] = members.from[..]
    else {
        let (group, _) = members.scenario.workload().roles();
        return Err(LabError::Vm { name: group.to_owned(), why: "a web application has four servers".into() });
    };
    make_files(members, files, operations)?;
    let mut servers = vec![
        (database_index, start_postgres(members, database)?),
        (cache_index, memcached::start_server(members, cache)?),
        (files_index, nginx::start_files(members, files)?),
    ];
    let application = Task::Web {
        database: address(database),
        cache: address(cache),
        files: address(files),
        keep_alive,
        operations: operations.iter().map(web_operation).collect(),
    };
    web.call_within(members.start_op(application), FILL_LIMIT)?;
    let site = front(&address(files), members.place, keep_alive);
    servers.push((web_index, nginx::start(members, web, &site)?));
    Ok(servers)
}

/// Starts the users.
pub fn begin(members: &Members, users: Users, operations: &[Operation]) -> Result<(), LabError> {
    let Users { users: all, think_time_ms, keep_alive } = users;
    let (_, web) = members.from[0];
    let vms = members.to.len() as u32;
    (0..).zip(&members.to).try_for_each(|(position, (_, vm))| {
        let task = Task::Users {
            to: address(web),
            users: all / vms + u32::from(position < all % vms),
            think_time_ms,
            keep_alive,
            operations: operations.iter().map(web_operation).collect(),
            seed: members.seed.wrapping_add(u64::from(position) << 32),
        };
        members.start(vm, task)
    })
}

fn web_operation(operation: &Operation) -> WebOperation {
    let call = |call: &StoreCall| WebCall {
        store: match call.store {
            Store::Database => WebStore::Database,
            Store::Cache => WebStore::Cache,
            Store::Files => WebStore::Files,
        },
        times: call.times,
        request_bytes: call.request_bytes.into(),
        response_bytes: call.response_bytes.into(),
    };
    WebOperation {
        weight: operation.weight,
        request_bytes: operation.request_bytes.into(),
        calls: operation.calls.iter().map(call).collect(),
        response_bytes: operation.response_bytes.into(),
        objects: operation.objects,
        object_bytes: operation.object_bytes.into(),
    }
}

/// nginx before the application: pages are the application's, and what is on them comes from the file store.
fn front(files: &str, place: u8, keep_alive: bool) -> nginx::Site {
    let [application_port, files_port] = [APPLICATION_PORT, HTTP_PORT].map(|first| port_of(first, place));
    let kept = if keep_alive { "keepalive 64; " } else { "" };
    let (version, connection) = if keep_alive { ("1.1", "\"\"") } else { ("1.0", "close") };
    nginx::Site {
        upstreams: format!(
            "upstream application {{ server 127.0.0.1:{application_port}; {kept}}}\n    \
             upstream files {{ server {files}:{files_port}; {kept}}}\n    \
             proxy_http_version {version};\n    proxy_set_header Connection {connection};\n    \
             proxy_buffers 16 16k;\n    client_body_buffer_size 512k;\n"
        ),
        locations: "location /operation/ { proxy_pass http://application; }\n        \
                    location /object/ { proxy_pass http://files; }"
            .to_owned(),
    }
}

/// Objects of all sizes that are asked for.
fn make_files(members: &Members, vm: &Vm, operations: &[Operation]) -> Result<(), LabError> {
    let of_calls = operations.iter().flat_map(|operation| &operation.calls).filter(|call| call.store == Store::Files);
    let sizes: BTreeSet<u32> = operations
        .iter()
        .map(|operation| operation.object_bytes)
        .chain(of_calls.map(|call| call.response_bytes))
        .collect();
    nginx::make_files(members, vm, &sizes)
}

/// Starts PostgreSQL on a fresh copy of the cluster that the image has; returns its task.
fn start_postgres(members: &Members, vm: &Vm) -> Result<u64, LabError> {
    let (directory, port) = (format!("/run/postgres/{}", members.place), members.port(POSTGRES_PORT));
    vm.shell(&format!(
        "mkdir -p /run/postgres\nrm -rf {directory}\ncp -a /var/lib/postgres {directory}\n\
         echo 'host all all 10.0.0.0/8 trust' >>{directory}/pg_hba.conf\n\
         chown -R 101:101 {directory}\nchmod 700 {directory}"
    ))?;
    let settings = ["listen_addresses=*", "unix_socket_directories=", &format!("port={port}")]
        .map(|setting| format!(" -c '{setting}'"))
        .concat();
    let line = format!(
        "exec setpriv --reuid=101 --regid=101 --clear-groups /usr/lib/postgresql/*/bin/postgres -D \
         {directory}{settings}"
    );
    let task = started(vm, Op::Spawn { argv: ["/bin/sh", "-c", &line].map(str::to_owned).to_vec() })?;
    vm.shell(&format!(
        "i=0; until ss -Hltn sport = :{port} | grep -q .; do i=$((i+1)); [ $i -lt 400 ]; sleep 0.05; done"
    ))?;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_kept_only_where_that_is_asked_for() {
        let (kept, single) = (front("10.0.0.4", 0, true), front("10.0.0.4", 2, false));
        assert!(
            kept.upstreams.contains("server 10.0.0.4:80; keepalive 64; }") && kept.upstreams.contains("version 1.1")
        );
        assert!(!single.upstreams.contains("keepalive") && single.upstreams.contains("Connection close"));
        assert!(single.upstreams.contains("127.0.0.1:8082;") && single.upstreams.contains("10.0.0.4:82;"));
    }
}
