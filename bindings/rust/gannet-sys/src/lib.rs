//! Raw bindings to `libgannet`. The manual of every item is the header, `ann.h`; the safe crate
//! over them is `gannet`.
//!
//! `Default` of a struct is its `_INIT` macro: `struct_size` set, everything else zero.
//!
//! # Finding the library
//!
//! When it builds, this crate looks for the library in `GANNET_DIR` (an installed tree, Debian's
//! `lib/TRIPLET` included, or a build folder), else where pkg-config says, else in the source tree's
//! `build/`. A library that lacks a function of these bindings is refused. With the feature `static`
//! it is `libgannet.a` that is looked for; with `vendored` the library is built from the sources that
//! the crate brings, by CMake, and linked statically.
//!
//! Under `cargo run` and `cargo test` programs find the shared library too. A program that runs on its
//! own needs it in a folder that the dynamic linker knows, its folder in `LD_LIBRARY_PATH`, or an
//! rpath. A crate that depends on this one directly can set one in its build script:
//!
//! ```ignore
//! if let Ok(folder) = std::env::var("DEP_GANNET_LIBDIR") {
//!     println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
//! }
//! ```

#![allow(non_camel_case_types, non_upper_case_globals)]

mod bindings {
    // Included, not a module file: bindgen formats it, and rustfmt leaves it alone.
    include!("bindings.rs");
}

pub use bindings::*;

/// Marks a result that does not exist. By hand, because bindgen does not see through `UINT64_MAX`.
pub const ANN_ID_NONE: u64 = u64::MAX;

macro_rules! init {
    ($($name:ident)*) => {$(
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: the structs of ann.h hold numbers, arrays of numbers and nullable
                // pointers; zero bytes are a value of each.
                let zeros: Self = unsafe { std::mem::zeroed() };
                Self { struct_size: std::mem::size_of::<Self>() as u32, ..zeros }
            }
        }
    )*};
}

init! {
    ann_error ann_matrix ann_results ann_context_params ann_progress ann_device_info
    ann_index_params ann_index_info ann_graph_stats ann_build_params ann_plan ann_search_params
    ann_knn_params ann_knn_lists ann_save_params ann_writer ann_open_params ann_reader ann_file_description
}
