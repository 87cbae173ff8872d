//! Gannet finds, among n stored vectors ("rows"), the k that lie nearest to a query. It builds a
//! graph whose edges join near rows, and a search walks that graph. It reads a few hundred rows
//! out of millions and still finds nearly all true neighbours; how nearly is the one number that
//! most callers set: [`SearchParams::recall`].
//!
//! ```
//! use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams};
//!
//! // 100 rows of two columns: points on a line.
//! let rows: Vec<f32> = (0..100).flat_map(|i| [i as f32, 1.0]).collect();
//!
//! let index = Index::new(&IndexParams::new(2))?;
//! index.build(Matrix::new(&rows, 2)?, &BuildParams::new())?;
//!
//! let found = index.search(Matrix::new(&[41.8, 1.0], 2)?, 3, &SearchParams::new())?;
//! assert_eq!(found.ids(), [42, 41, 43]);
//! # Ok::<(), gannet::Error>(())
//! ```
//!
//! The crate is a thin layer over `libgannet.so`; its manual in full is the header, `ann.h`. What
//! a parameter's builder does not set is chosen by the library.
//!
//! * **Threads.** Everything is `Send` and `Sync`. Any number of threads may search one
//!   [`Index`] at once, and a [`Monitor`] cancels a call from another thread.
//! * **Errors.** Nothing panics but a stream of the caller, whose panic goes on where it began. A call
//!   that fails gives an [`Error`] with a [`Status`], a line of text, and the row and column at fault
//!   where there is one.
//! * **Memory.** Rows are copied by [`Index::build`] and borrowed by [`Index::build_borrowed`],
//!   which the compiler then holds in place for as long as the index lives. Results are owned
//!   ([`Index::search`]) or go into buffers of the caller ([`Index::search_into`]). Allocators of
//!   one's own are left to `gannet-sys`, because no safe interface can vouch for them.
//! * **Files.** [`Index::save`] replaces a file whole or not at all, [`Index::open`] checks every byte
//!   of one. Streams, bytes in memory and mapped files are opened as well.
//! * **Finding the library.** See `gannet-sys`: `GANNET_DIR`, pkg-config or the source tree when
//!   building; `LD_LIBRARY_PATH`, an rpath or the system's folders when a program runs on its own.
//!
//! * **GPUs.** [`SearchParams::device`] and [`BuildParams::device`] choose one; [`cuda`] has placement,
//!   device memory and streams.
//!
//! # Features
//!
//! * `ndarray`: views of one and two dimensions become a [`Matrix`]; versions 0.15 to 0.17.
//! * `half`: its `f16` and `bf16` are elements.
//! * `serde`: results and descriptions can be serialized, enums deserialized too.
//! * `static`: links `libgannet.a` instead of `libgannet.so`.
//! * `vendored`: builds the library from source with CMake, and links it statically.

#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc)]
#![deny(unsafe_op_in_unsafe_fn)]

use gannet_sys as sys;

#[macro_use]
mod macros;

mod context;
pub mod cuda;
mod device;
mod element;
mod error;
mod files;
mod index;
mod knn;
mod matrix;
mod monitor;
mod params;
mod results;
mod streams;
mod version;

pub use context::{Context, ContextParams};
pub use device::{device_count, device_info, devices, Device, DeviceCount, DeviceInfo};
pub use element::{Bf16, Element, ElementType, F16};
pub use error::{Error, Result, Status};
pub use files::{file_info, verify, FileInfo, OpenParams, SaveParams};
pub use index::{estimate, Graph, GraphStats, Index, IndexInfo, Plan};
pub use knn::{knn_graph, knn_graph_into, knn_merge, IdLists, KnnGraph, KnnParams};
pub use matrix::Matrix;
pub use monitor::{Monitor, Progress};
pub use params::{
    BuildParams, CodeKind, Compare, Detours, Diversify, GraphKind, IndexParams, KnnMethod, Metric,
    Procedure, QueueTakes, Reorder, SearchParams, SlackOf,
};
pub use results::{
    Neighbor, Neighbors, NeighborsIter, QueryStatus, ResultParts, Results, ResultsIter, ResultsMut,
    SearchStats,
};
pub use version::{abi_version, build_info, is_compatible, version};

/// Marks a result that does not exist; never the id of a row.
pub const ID_NONE: u64 = sys::ANN_ID_NONE;

/// Marks an unused place in a graph; never the number of a row.
pub const ROW_NONE: u32 = u32::MAX;
