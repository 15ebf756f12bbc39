//! Compiles the eBPF programs of kernel/host and kernel/guest and makes Rust declarations of their boundaries with user
//! space.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The programs of a port and those that the agent runs; together they share their maps.
const PROGRAMS: [&str; 6] = ["to_vm", "from_vm", "proboscis/inject", "vsnoop/sweep", "vsnoop/ring", "vflood/idle"];
/// Objects of their own: not all kernels take them.
const QDISC: &str = "vflood/qdisc";
const VCPUS: &str = "vsnoop/vcpus";
/// One object per mechanism: a guest may take one and not the other.
const GUEST_PROGRAMS: [&str; 2] = ["vflood", "cera"];

fn main() {
    let top = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let (host, guest, algo) = (top.join("kernel/host"), top.join("kernel/guest"), top.join("algo"));
    for path in [&host, &guest, &algo, &top.join("kernel/vmlinux.h")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");

    compile(&host, &top, &out);
    compile_one(&host.join(format!("{QDISC}.bpf.c")), &top, &out.join("qdisc.bpf.o"));
    compile_one(&host.join(format!("{VCPUS}.bpf.c")), &top, &out.join("vcpus.bpf.o"));
    for name in GUEST_PROGRAMS {
        compile_one(&guest.join(format!("{name}/{name}.bpf.c")), &top, &out.join(format!("guest-{name}.bpf.o")));
    }
    for (directory, prefix, to, counted) in [
        (&host, "EK_COUNT_", "intf.rs", "counters.rs"),
        (&guest, "EK_GUEST_COUNT_", "guest-intf.rs", "guest-counters.rs"),
    ] {
        let intf = directory.join("intf.h");
        declare(&intf, &top, &out.join(to));
        let text = fs::read_to_string(&intf).expect("intf.h is readable");
        fs::write(out.join(counted), counters(&text, prefix)).expect("OUT_DIR is writable");
    }
    let text = fs::read_to_string(host.join("intf.h")).expect("intf.h is readable");
    let modes = listed(&text, "EK_OTHERS_THAN_VFLOOD").map(|name| format!("|port| port.{name}.mode"));
    fs::write(out.join("others.rs"), format!("[{}]\n", modes.collect::<Vec<_>>().join(", ")))
        .expect("OUT_DIR is writable");
}

/// Compiles each program, links them into one object and writes its skeleton.
fn compile(host: &Path, top: &Path, out: &Path) {
    let linked = out.join("host.bpf.o");
    let mut linker = libbpf_rs::Linker::new(&linked).expect("OUT_DIR is writable");
    for name in PROGRAMS {
        let object = out.join(format!("{}.bpf.o", name.replace('/', "-")));
        compile_one(&host.join(format!("{name}.bpf.c")), top, &object);
        linker.add_file(&object).expect("the object that was just compiled can be linked");
    }
    linker.link().expect("the programs agree on their maps");
    libbpf_cargo::SkeletonBuilder::new()
        .obj(&linked)
        .generate(out.join("host.skel.rs"))
        .expect("a linked object has a skeleton");
}

/// Compiles one program.
fn compile_one(source: &Path, top: &Path, object: &Path) {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang-19".into());
    let libbpf = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys names its headers");
    // The declarations that host and guest share.
    let kernel = top.join("kernel");
    libbpf_cargo::SkeletonBuilder::new()
        .source(source)
        .obj(object)
        .clang(&clang)
        .clang_args([
            "-I".as_ref(),
            top.as_os_str(),
            "-I".as_ref(),
            kernel.as_os_str(),
            "-isystem".as_ref(),
            libbpf.as_os_str(),
            "-std=gnu11".as_ref(),
            "-Wall".as_ref(),
            "-Werror".as_ref(),
        ])
        .build()
        .unwrap_or_else(|e| panic!("{} does not compile (is clang-19 installed?): {e:?}", source.display()));
}

fn declare(intf: &Path, top: &Path, to: &Path) {
    bindgen::Builder::default()
        .header(intf.to_str().expect("the path of the sources is UTF-8"))
        .clang_arg(format!("-I{}", top.display()))
        .allowlist_file(".*/(algo|kernel)/.*\\.h")
        .blocklist_function(".*")
        .derive_default(true)
        .derive_eq(true)
        .prepend_enum_name(false)
        .derive_hash(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).expect("a Rust that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate()
        .expect("libclang parses intf.h")
        .write_to_file(to)
        .expect("OUT_DIR is writable");
}

/// What is in a list, out of `#define LIST(OF) OF(one) OF(other)`.
fn listed<'a>(intf: &'a str, list: &str) -> impl Iterator<Item = &'a str> {
    let (_, list) = intf.split_once(&format!("#define {list}(MECHANISM)")).expect("intf.h has the list");
    let (list, _) = list.split_once("\n#define").expect("more stands behind it");
    list.split("MECHANISM(").skip(1).map(|name| name.split(')').next().unwrap_or_default())
}

/// Names and help texts of the counters, out of `PREFIX_NAME, /* Help */`.
fn counters(intf: &str, prefix: &str) -> String {
    let mut list = String::from("[\n");
    for declared in intf.split(&format!("\t{prefix}")).skip(1) {
        let (name, rest) = declared.split_once(", /* ").expect("a counter has a comment behind it");
        let (help, _) = rest.split_once("*/").expect("a comment ends");
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        writeln!(list, "    ({:?}, {help:?}),", name.to_lowercase()).expect("a string takes all");
    }
    list.push_str("]\n");
    list
}
