//! Puts the sources of the guest module into the binary, so that the lab can build it for every kernel away from the
//! source tree, and compiles the eBPF program of the lab's marking ports.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let top = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let mut files = Vec::new();
    // dkms expects the headers of algo/ beside the module's own files.
    collect(&top.join("kernel/guest/pvtcp"), "", &mut files);
    for folder in ["base", "pvtcp"] {
        collect(&top.join("algo").join(folder), &format!("algo/{folder}/"), &mut files);
    }
    files.sort();
    let mut code = String::from("&[\n");
    for (name, path) in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string()).expect("a String takes all");
    }
    code.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("module_sources.rs");
    fs::write(out, code).expect("cannot write to OUT_DIR");
    compile_port(&top);
}

/// Compiles the marking port's program.
fn compile_port(top: &Path) {
    let source = top.join("kernel/lab/port.bpf.c");
    let declarations = top.join("kernel");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-changed={}", declarations.join("vmlinux.h").display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let libbpf = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys names its headers");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("port.bpf.o");
    libbpf_cargo::SkeletonBuilder::new()
        .source(source)
        .clang(env::var_os("CLANG").unwrap_or_else(|| "clang-19".into()))
        .clang_args([
            "-I".as_ref(),
            declarations.as_os_str(),
            "-isystem".as_ref(),
            libbpf.as_os_str(),
            "-std=gnu11".as_ref(),
            "-Wall".as_ref(),
            "-Werror".as_ref(),
        ])
        .obj(out)
        .build()
        .unwrap_or_else(|e| panic!("port.bpf.c does not compile (is clang-19 installed?): {e:?}"));
}

/// The source files in `dir` (no folders).
fn collect(dir: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) {
    println!("cargo::rerun-if-changed={}", dir.display());
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let is_source = name.ends_with(".h")
            || (name.ends_with(".c") && !name.ends_with(".mod.c"))
            || matches!(name, "Makefile" | "Kbuild" | "dkms.conf");
        if is_source {
            files.push((format!("{prefix}{name}"), path.clone()));
        }
    }
}
