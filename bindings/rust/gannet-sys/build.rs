//! Finds libgannet.so and tells cargo where it is. Looked at, in this order:
//!
//! 1. `GANNET_DIR`: an installed tree (`lib/libgannet.so`) or a build folder (`libgannet.so`);
//! 2. pkg-config, asked for `gannet`;
//! 3. `build/` of the source tree that this crate lies in.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

const LIBRARY: &str = "libgannet.so";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["GANNET_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "DOCS_RS"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    // docs.rs makes documentation without the library and links nothing.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Err(message) = find().and_then(|folder| announce(&folder)) {
        eprintln!("gannet-sys: {message}");
        exit(1);
    }
}

/// The folder that holds the library.
fn find() -> Result<PathBuf, String> {
    if let Some(given) = env::var_os("GANNET_DIR").filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        let folders = [given.join("lib"), given.join("lib64"), given.clone()];
        // A wrong GANNET_DIR is an error: another library than the one asked for is no help.
        return first_with_library(&folders).ok_or(format!(
            "GANNET_DIR is {}, but neither it nor its lib or lib64 holds {LIBRARY}",
            given.display()
        ));
    }
    let crate_folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let in_tree = crate_folder.join("../../../build");
    let folders: Vec<_> = ask_pkg_config().into_iter().chain([in_tree.clone()]).collect();
    first_with_library(&folders).ok_or(format!(
        "no {LIBRARY} found. One of these helps:\n\
         - set GANNET_DIR to the folder that Gannet is installed in, or to its build folder;\n\
         - install Gannet, and set PKG_CONFIG_PATH to the folder with gannet.pc if pkg-config \
         does not find it by itself;\n\
         - in the source tree: cmake -S . -B build && cmake --build build (looked in {})",
        in_tree.display()
    ))
}

fn first_with_library(folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().find(|folder| folder.join(LIBRARY).exists())?.canonicalize().ok()
}

/// The library folder that gannet.pc names, if there is a pkg-config and it knows one.
fn ask_pkg_config() -> Option<PathBuf> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| OsString::from("pkg-config"));
    let asked = Command::new(program).args(["--variable=libdir", "gannet"]).output().ok()?;
    let folder = String::from_utf8(asked.stdout).ok()?;
    (asked.status.success() && !folder.trim().is_empty()).then(|| PathBuf::from(folder.trim()))
}

fn announce(folder: &Path) -> Result<(), String> {
    let linked = link_into_out_dir(folder)
        .map_err(|error| format!("cannot make links to {}: {error}", folder.display()))?;
    println!("cargo::rerun-if-changed={}", folder.join(LIBRARY).display());
    println!("cargo::rustc-link-search=native={}", linked.display());
    println!("cargo::rustc-link-lib=dylib=gannet");
    // Build scripts of crates that depend on this one read it as DEP_GANNET_LIBDIR.
    println!("cargo::metadata=libdir={}", folder.display());
    Ok(())
}

/// Links to the library in cargo's output folder. `cargo test` and `cargo run` put search paths
/// into LD_LIBRARY_PATH only if they lie there, so this is what makes both work without it.
fn link_into_out_dir(folder: &Path) -> io::Result<PathBuf> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("lib");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name.to_string_lossy().starts_with(LIBRARY) {
            std::os::unix::fs::symlink(folder.join(&name), out.join(&name))?;
        }
    }
    Ok(out)
}
