//! Compiles the eBPF programs of kernel/host and makes Rust declarations of their boundary with user space.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// One file per attach point; together they share their maps.
const PROGRAMS: [&str; 5] = ["to_vm", "from_vm", "inject", "sweep", "room"];

fn main() {
    let top = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let (host, algo) = (top.join("kernel/host"), top.join("algo"));
    for path in [&host, &algo] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");

    compile(&host, &algo, &out);
    let intf = host.join("intf.h");
    declare(&intf, &algo, &out.join("intf.rs"));
    fs::write(out.join("counters.rs"), counters(&fs::read_to_string(&intf).expect("intf.h is readable")))
        .expect("OUT_DIR is writable");
}

/// Compiles each program, links them into one object and writes its skeleton.
fn compile(host: &Path, algo: &Path, out: &Path) {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang-19".into());
    let libbpf = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys names its headers");
    let linked = out.join("host.bpf.o");
    let mut linker = libbpf_rs::Linker::new(&linked).expect("OUT_DIR is writable");
    for name in PROGRAMS {
        let object = out.join(format!("{name}.bpf.o"));
        libbpf_cargo::SkeletonBuilder::new()
            .source(host.join(format!("{name}.bpf.c")))
            .obj(&object)
            .clang(&clang)
            .clang_args([
                "-I".as_ref(),
                algo.as_os_str(),
                "-isystem".as_ref(),
                libbpf.as_os_str(),
                "-std=gnu11".as_ref(),
                "-Wall".as_ref(),
                "-Werror".as_ref(),
            ])
            .build()
            .unwrap_or_else(|e| panic!("{name}.bpf.c does not compile (is clang-19 installed?): {e:?}"));
        linker.add_file(&object).expect("the object that was just compiled can be linked");
    }
    linker.link().expect("the programs agree on their maps");
    libbpf_cargo::SkeletonBuilder::new()
        .obj(&linked)
        .generate(out.join("host.skel.rs"))
        .expect("a linked object has a skeleton");
}

fn declare(intf: &Path, algo: &Path, to: &Path) {
    bindgen::Builder::default()
        .header(intf.to_str().expect("the path of the sources is UTF-8"))
        .clang_arg(format!("-I{}", algo.display()))
        .allowlist_item("(ek|EK|cera|CERA|proboscis|PROBOSCIS|vsnoop|VSNOOP|window|WINDOW)_.*")
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

/// Names and help texts of the counters, out of the lines `EK_COUNT_NAME, /* Help */`.
fn counters(intf: &str) -> String {
    let mut list = String::from("[\n");
    for line in intf.lines().filter_map(|l| l.trim().strip_prefix("EK_COUNT_")) {
        let (name, help) = line.split_once(", /* ").expect("a counter has a comment on its line");
        let help = help.strip_suffix(" */").expect("a counter's comment ends on its line");
        writeln!(list, "    ({:?}, {help:?}),", name.to_lowercase()).expect("a string takes all");
    }
    list.push_str("]\n");
    list
}
