//! Compiles the headers of algo/ and makes their Rust declarations.

use std::path::PathBuf;

fn main() {
    let algo = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../algo");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    // bindgen writes one real C function per inline one, which cc then compiles.
    let wrappers = out.join("wrappers.c");
    println!("cargo::rerun-if-changed={}", algo.display());

    let headers = [
        "pvtcp/pvtcp.h",
        "base/seq.h",
        "congestion/reno.h",
        "congestion/cubic.h",
        "congestion/hystart.h",
        "congestion/dctcp.h",
        "base/packet.h",
        "base/siphash.h",
        "base/window.h",
        "base/steps.h",
        "proboscis/proboscis.h",
        "cera/cera.h",
        "congestion/congestion.h",
        "vflood/vflood.h",
        "vsnoop/vsnoop.h",
        "vflood/ack_filter.h",
        "vflood/rest.h",
    ]
    .map(|name| algo.join(name).to_str().expect("the path of the sources is UTF-8").to_owned());
    bindgen::Builder::default()
        .headers(headers)
        .allowlist_item(
            "(pvtcp|PVTCP|packet|PACKET|siphash|window|WINDOW|proboscis|PROBOSCIS|seq|reno|RENO|cubic|hystart|dctcp\
             |DCTCP|cera|CERA|congestion|CONGESTION|vegas|vflood|VFLOOD|vsnoop|VSNOOP|ack_filter|ACK_FILTER|step\
             |STEP)_.*",
        )
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
