//! Finds the library and tells cargo where it is. With the feature `vendored` it is built from the sources
//! in `source/`. Otherwise looked at, in this order:
//!
//! 1. `GANNET_DIR`: an installed tree (the library in `lib`, `lib64` or `lib/TRIPLET`, as Debian calls the
//!    folder of an architecture) or a build folder (the library in it);
//! 2. pkg-config, asked for `gannet`;
//! 3. `build/` of the source tree that this crate lies in.
//!
//! The feature `static` asks for libgannet.a instead of libgannet.so. A library that lacks a function of
//! these bindings is refused here, before the linker would say so in its own words.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

const SHARED: &str = "libgannet.so";
const STATIC: &str = "libgannet.a";

/// What a static library needs beside itself, if its gannet.pc does not say.
const NEEDED: &str = "-lstdc++ -lm -lpthread -ldl";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in [
        "GANNET_DIR",
        "GANNET_CUDA",
        "CUDA_HOME",
        "CUDA_PATH",
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
        "PKG_CONFIG_LIBDIR",
        "DOCS_RS",
    ] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    // docs.rs makes documentation without the library and links nothing.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Err(message) = link() {
        eprintln!("gannet-sys: {message}");
        exit(1);
    }
}

fn link() -> Result<(), String> {
    if feature("VENDORED") {
        let folder = vendored()?;
        return announce_static(&folder);
    }
    let name = if feature("STATIC") { STATIC } else { SHARED };
    let folder = find(name)?;
    check_functions(&folder.join(name))?;
    if feature("STATIC") {
        announce_static(&folder)
    } else {
        announce_shared(&folder)
    }
}

fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

/// The folder that holds the library.
fn find(name: &str) -> Result<PathBuf, String> {
    if let Some(given) = env::var_os("GANNET_DIR").filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        let folders = [
            given.join("lib"),
            given.join("lib64"),
            given.join("lib").join(triplet()),
            given.clone(),
        ];
        // A wrong GANNET_DIR is an error: another library than the one asked for is no help.
        return first_with(name, &folders).ok_or(format!(
            "GANNET_DIR is {}, but neither it nor its lib, lib64 or lib/{} holds {name}",
            given.display(),
            triplet()
        ));
    }
    let in_tree = crate_folder().join("../../../build");
    let folders: Vec<_> = ask_pkg_config("libdir").into_iter().chain([in_tree.clone()]).collect();
    first_with(name, &folders).ok_or(format!(
        "no {name} found. One of these helps:\n\
         - set GANNET_DIR to the folder that Gannet is installed in, or to its build folder;\n\
         - install Gannet, and set PKG_CONFIG_PATH to the folder with gannet.pc if pkg-config \
         does not find it by itself;\n\
         - take the feature \"vendored\", which builds it from source with CMake;\n\
         - in the source tree: cmake -S . -B build && cmake --build build (looked in {})",
        in_tree.display()
    ))
}

fn crate_folder() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
}

/// The name that Debian gives the folder of an architecture: x86_64-unknown-linux-gnu is
/// x86_64-linux-gnu there.
fn triplet() -> String {
    let target = env::var("TARGET").unwrap_or_default();
    let parts: Vec<&str> = target.split('-').collect();
    match parts[..] {
        [machine, _, system, kind] => format!("{machine}-{system}-{kind}"),
        _ => target,
    }
}

fn first_with(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().find(|folder| folder.join(name).exists())?.canonicalize().ok()
}

/// A variable of gannet.pc, if there is a pkg-config and it knows one.
fn ask_pkg_config(variable: &str) -> Option<PathBuf> {
    let asked = pkg_config(&[&format!("--variable={variable}"), "gannet"])?;
    (!asked.is_empty()).then(|| PathBuf::from(asked))
}

fn pkg_config(arguments: &[&str]) -> Option<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| OsString::from("pkg-config"));
    let asked = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| text.trim().to_owned())
}

/// Refuses a library that does not name every function of the bindings in its table of symbols, as one
/// that is older does not, and one whose version counts as another library (until 1.0: another minor).
fn check_functions(library: &Path) -> Result<(), String> {
    let ours = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let real = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(theirs) = name.strip_prefix("libgannet.so.").filter(|v| v.split('.').count() == 3) {
        if series(theirs) != series(&ours) {
            return Err(format!(
                "{} is of version {theirs}; these bindings are of {ours}",
                real.display()
            ));
        }
    }
    let bytes = fs::read(&real).map_err(|error| format!("{}: {error}", real.display()))?;
    let known: HashSet<&[u8]> =
        bytes.split(|&byte| byte == 0).filter(|text| text.starts_with(b"ann_")).collect();
    for line in include_str!("src/bindings.rs").lines() {
        let Some(function) = line.trim().strip_prefix("pub fn ") else { continue };
        let function = function.split('(').next().unwrap_or_default();
        if !known.contains(function.as_bytes()) {
            return Err(format!(
                "{} lacks {function}: it is older than these bindings, which are of {ours}",
                real.display()
            ));
        }
    }
    Ok(())
}

/// The part of a version that must be equal: the major, and before 1.0 the minor as well.
fn series(version: &str) -> Vec<&str> {
    let parts: Vec<&str> = version.split('.').collect();
    let count = if parts.first() == Some(&"0") { 2 } else { 1 };
    parts.into_iter().take(count).collect()
}

fn announce_shared(folder: &Path) -> Result<(), String> {
    let linked = link_into_out_dir(folder)
        .map_err(|error| format!("cannot make links to {}: {error}", folder.display()))?;
    println!("cargo::rerun-if-changed={}", folder.join(SHARED).display());
    println!("cargo::rustc-link-search=native={}", linked.display());
    println!("cargo::rustc-link-lib=dylib=gannet");
    // Build scripts of crates that depend on this one read it as DEP_GANNET_LIBDIR.
    println!("cargo::metadata=libdir={}", folder.display());
    Ok(())
}

/// Links to the library in cargo's output folder. `cargo test` and `cargo run` put search paths
/// into LD_LIBRARY_PATH only if they lie there, so this is what makes both work without it.
fn link_into_out_dir(folder: &Path) -> io::Result<PathBuf> {
    let out = out_dir().join("lib");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name.to_string_lossy().starts_with(SHARED) {
            std::os::unix::fs::symlink(folder.join(&name), out.join(&name))?;
        }
    }
    Ok(out)
}

fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default())
}

fn announce_static(folder: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-changed={}", folder.join(STATIC).display());
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=static=gannet");
    // Where the CUDA toolkit has its libraries, of which an archive with GPU code needs one.
    for root in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os) {
        println!("cargo::rustc-link-search=native={}", Path::new(&root).join("lib64").display());
    }
    for word in needed_by_static(folder).split_whitespace() {
        if let Some(library) = word.strip_prefix("-l").filter(|&library| library != "gannet") {
            println!("cargo::rustc-link-lib={library}");
        } else if let Some(path) = word.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={path}");
        } else if word.starts_with('/') {
            println!("cargo::rustc-link-arg={word}");
        }
    }
    println!("cargo::metadata=libdir={}", folder.display());
    Ok(())
}

/// What the gannet.pc beside the library names.
fn needed_by_static(folder: &Path) -> String {
    let text = ["pkgconfig/gannet.pc", "gannet.pc"]
        .iter()
        .find_map(|name| fs::read_to_string(folder.join(name)).ok())
        .unwrap_or_default();
    // Where there is only an archive, Libs has everything.
    let named =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let words = format!("{} {}", named("Libs:"), named("Libs.private:"));
    if words.contains("-lstdc++") {
        // The folder of gannet.pc's own variables is known already.
        words.split_whitespace().filter(|word| !word.contains("${")).collect::<Vec<_>>().join(" ")
    } else if feature("VENDORED") && cuda_wish() != "off" {
        format!("-lcudart_static -lrt {NEEDED}")
    } else {
        NEEDED.to_owned()
    }
}

/// Whether a library that is built here gets GPU code.
fn cuda_wish() -> String {
    env::var("GANNET_CUDA").unwrap_or_else(|_| "off".into())
}

/// Builds the library in cargo's output folder, for the CPU unless `GANNET_CUDA` says `on`.
#[cfg(feature = "vendored")]
fn vendored() -> Result<PathBuf, String> {
    let source = crate_folder().join("source");
    println!("cargo::rerun-if-changed={}", source.join("CMakeLists.txt").display());
    for folder in ["core", "capi"] {
        println!("cargo::rerun-if-changed={}", source.join(folder).display());
    }
    let built = cmake::Config::new(source)
        .profile("Release")
        .define("BUILD_SHARED_LIBS", "OFF")
        .define("GANNET_CUDA", cuda_wish())
        .define("GANNET_TOOL", "off")
        .define("GANNET_INSTALL", "OFF")
        .build_target("gannet")
        .build();
    let folder = built.join("build");
    if folder.join(STATIC).exists() {
        Ok(folder)
    } else {
        Err(format!("CMake has built no {STATIC} in {}", folder.display()))
    }
}

#[cfg(not(feature = "vendored"))]
fn vendored() -> Result<PathBuf, String> {
    Err("this build script was made without the feature \"vendored\"".into())
}
