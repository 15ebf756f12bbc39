//! Compiles the headers of algo/, makes their Rust declarations, and the steps of a packet's way out of their lists.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let algo = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../algo");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    println!("cargo::rerun-if-changed={}", algo.display());

    let text = fs::read_to_string(algo.join("base/steps.h")).expect("steps.h is readable");
    let steps = steps(&text, "ToVm", "to_vm") + &steps(&text, "FromVm", "from_vm");
    fs::write(out.join("steps.rs"), steps).expect("OUT_DIR is writable");

    // bindgen writes one real C function per inline one, which cc then compiles.
    let wrappers = out.join("wrappers.c");
    bindgen::Builder::default()
        .headers(headers(&algo))
        .allowlist_file(".*/algo/.*\\.h")
        .rustified_enum("(pvtcp_timer|packet_kind|dctcp_ack|vflood_verdict|vsnoop_verdict|vsnoop_ack)")
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .derive_default(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).expect("a Rust that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate()
        .expect("libclang parses the headers of algo/ (libclang-19-dev and clang-19 provide libclang)")
        .write_to_file(out.join("sys.rs"))
        .expect("OUT_DIR is writable");

    cc::Build::new()
        .file(&wrappers)
        .include(&algo)
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("evenkeel_algo");
}

/// All headers of algo/, each folder's in turn.
fn headers(algo: &Path) -> Vec<String> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let read = fs::read_dir(folder).expect("algo/ is readable");
        let mut paths: Vec<PathBuf> = read.map(|entry| entry.expect("algo/ is readable").path()).collect();
        paths.sort();
        paths
    };
    let folders = entries(algo).into_iter().filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| entries(&folder)).filter(|path| path.extension().is_some_and(|e| e == "h"));
    files.map(|file| file.into_os_string().into_string().expect("the path of the sources is UTF-8")).collect()
}

/// The enum of a list of steps, out of `STEP(NAME, function)`, and of ` *   NAME   what it does` above the list.
fn steps(text: &str, name: &str, way: &str) -> String {
    let upper = way.to_uppercase();
    let (above, list) = text.split_once(&format!("#define STEPS_{upper}(STEP)")).expect("steps.h has the list");
    let (_, above) = above.rsplit_once("/*").expect("a comment stands above it");
    let (list, _) = list.split_once("#define").expect("more stands behind it");
    let mut code = format!(
        "/// On the way {}.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]\n#[repr(u32)]\n\
         pub enum {name} {{\n",
        way.replace('_', " the ").replace("vm", "VM")
    );
    for step in list.split("STEP(").skip(1) {
        let (step, _) = step.split_once(',').expect("a step has a name and a function");
        let what = above.lines().find_map(|line| line.strip_prefix(" *   ")?.strip_prefix(step)?.strip_prefix(' '));
        let what = what.expect("the comment above says what each step is").trim();
        let value = format!("crate::sys::step_{way}_STEP_{upper}_{step}");
        writeln!(code, "    /// {what}.\n    {} = {value},", camel(step)).expect("a string takes all");
    }
    code + "}\n"
}

/// `ACK_CLOCK` is `AckClock`.
fn camel(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_owned() + &word[1..].to_lowercase()).collect()
}
