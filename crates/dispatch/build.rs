//! Chooses how sessions call their protocols: see `Dispatch` in `src/lib.rs`.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(contend_static_dispatch)");
    println!("cargo::rerun-if-changed=build.rs");
    let has = |variable: &str| std::env::var_os(variable).is_some();
    let is_measured = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_measured || has("CARGO_FEATURE_STATIC_DISPATCH") {
        println!("cargo::rustc-cfg=contend_static_dispatch");
    }
}
