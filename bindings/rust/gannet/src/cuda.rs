//! Indexes on CUDA devices, and searches in their memory.
//!
//! A search of host memory runs on a device when [`SearchParams::device`](crate::SearchParams::device)
//! says so; nothing of this module is needed for that but, perhaps, [`Index::place`]. Where vectors are on
//! the device anyway, they are searched and built from where they lie:
//!
//! ```no_run
//! use gannet::cuda::{DeviceBuffer, DeviceResults, Stream};
//! use gannet::{BuildParams, Device, Index, IndexParams, Matrix, SearchParams};
//!
//! # let (rows, queries) = (vec![0.0f32; 6400], vec![0.0f32; 640]);
//! let gpu = Device::Cuda(0);
//! let index = Index::new(&IndexParams::new(64))?;
//! index.build(Matrix::new(&rows, 64)?, &BuildParams::new().device(gpu))?;
//! index.place(gpu, None)?;
//!
//! // Waited for:
//! let on_gpu = DeviceBuffer::from_slice(gpu, &queries)?;
//! let mut found = DeviceResults::new(gpu, 10, 5)?;
//! index.search_on_device(on_gpu.matrix(64)?, &mut found.as_mut()?, &SearchParams::new())?;
//! println!("{:?}", found.read()?.ids());
//!
//! // Queued, while this thread does something else:
//! let stream = Stream::new(gpu)?;
//! let queued = index.search_queued(on_gpu, 64, found, &SearchParams::new(), &stream)?;
//! let (on_gpu, found) = queued.wait()?;
//! println!("{:?}", found.read()?.ids());
//! # Ok::<(), gannet::Error>(())
//! ```
//!
//! A queued search owns its buffers until it has been waited for, so that none of them can be freed or
//! written to before. What a program has from other libraries is given by pointer, in unsafe functions:
//! [`DeviceMatrix::new`], [`DeviceResultsMut::new`] and [`Index::search_on_stream`].
//!
//! Memory and streams come from the CUDA driver, which is opened when one of them is first made. Without a
//! driver or a device everything here fails with [`Status::NoDevice`](crate::Status::NoDevice).

mod driver;
mod memory;

use std::ffi::c_void;
use std::mem::forget;
use std::ptr::null_mut;

pub use self::memory::{DeviceBuffer, DeviceMatrix, DeviceResults, DeviceResultsMut, Stream};
pub use crate::matrix::Number;

use crate::device::Device;
use crate::element::Element;
use crate::error::{check, Result};
use crate::index::{Index, SearchCall};
use crate::knn::{self, KnnGraph, KnnParams};
use crate::macros::Raw;
use crate::matrix::AnyMatrix;
use crate::monitor::Monitor;
use crate::params::{BuildParams, SearchParams};
use crate::results::SearchStats;
use crate::sys;

/// On CUDA devices.
impl Index<'_> {
    /// Copies a built index with a graph to a CUDA device and calibrates it there, now rather than at the
    /// first search; nothing where it has been copied already. Searches go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`](crate::Status::InvalidArgument) for [`Device::Cpu`], `State` before the
    /// build, `Unsupported` without a graph, `NoDevice`, `NoMemory`, `DeviceNoMemory`, `DeviceLost`,
    /// `Corrupt`, `Cancelled`, `Deadline`; nothing is kept on the device then.
    pub fn place(&self, device: Device, monitor: Option<&Monitor>) -> Result<()> {
        let (index, monitor) = (self.pointer(), Monitor::pointer(monitor));
        // SAFETY: everything lives through the call.
        check(|error| unsafe { sys::ann_index_place(index, device.raw(), monitor, error) })
    }

    /// Releases the memory of that copy once the searches that use it are done, queued ones too;
    /// nothing where there is none. A later search on the device copies the index again.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`](crate::Status::InvalidArgument) for [`Device::Cpu`], `State` before the
    /// build.
    pub fn evict(&self, device: Device) -> Result<()> {
        let index = self.pointer();
        // SAFETY: the index lives through the call.
        check(|error| unsafe { sys::ann_index_evict(index, device.raw(), error) })
    }

    /// As [`build_with_ids`](Self::build_with_ids), over rows in memory of a CUDA device. A build on that
    /// device uses them where they lie; the index gets a copy in host memory.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_from_device<T: Element>(
        &self,
        rows: DeviceMatrix<'_, T>,
        ids: Option<&[u64]>,
        params: &BuildParams<'_>,
    ) -> Result<()> {
        self.run_build(rows, ids, params, sys::ANN_ROWS_COPY)
    }

    /// As [`search_into`](Self::search_into), with queries and results in memory of a CUDA device. Returns
    /// when the results are there.
    ///
    /// # Errors
    ///
    /// As [`search`](Self::search).
    pub fn search_on_device<T: Element>(
        &self,
        queries: DeviceMatrix<'_, T>,
        found: &mut DeviceResultsMut<'_>,
        params: &SearchParams<'_>,
    ) -> Result<SearchStats> {
        self.run_on_device(sys::ann_search_batch, queries.into(), found, params, null_mut())
    }

    /// As [`search_on_device`](Self::search_on_device), comparing with every row.
    ///
    /// # Errors
    ///
    /// As [`search_exact`](Self::search_exact).
    pub fn search_exact_on_device<T: Element>(
        &self,
        queries: DeviceMatrix<'_, T>,
        found: &mut DeviceResultsMut<'_>,
        params: &SearchParams<'_>,
    ) -> Result<SearchStats> {
        self.run_on_device(sys::ann_search_exact, queries.into(), found, params, null_mut())
    }

    /// Queues a search of queries of `dim` columns on a stream and returns. The monitor of `params` is
    /// asked while work is queued only.
    ///
    /// # Errors
    ///
    /// What is known by then, as [`search`](Self::search); the buffers are gone with it. A query with NaN
    /// or infinity is told by [`DeviceResults::statuses`].
    pub fn search_queued<T: Element>(
        &self,
        queries: DeviceBuffer<T>,
        dim: usize,
        found: DeviceResults,
        params: &SearchParams<'_>,
        stream: &Stream,
    ) -> Result<Queued<T>> {
        self.queue(sys::ann_search_batch, queries, dim, found, params, stream)
    }

    /// As [`search_queued`](Self::search_queued), comparing with every row.
    ///
    /// # Errors
    ///
    /// As [`search_queued`](Self::search_queued).
    pub fn search_exact_queued<T: Element>(
        &self,
        queries: DeviceBuffer<T>,
        dim: usize,
        found: DeviceResults,
        params: &SearchParams<'_>,
        stream: &Stream,
    ) -> Result<Queued<T>> {
        self.queue(sys::ann_search_exact, queries, dim, found, params, stream)
    }

    fn queue<T: Element>(
        &self,
        call: SearchCall,
        queries: DeviceBuffer<T>,
        dim: usize,
        found: DeviceResults,
        params: &SearchParams<'_>,
        stream: &Stream,
    ) -> Result<Queued<T>> {
        // Made before the call, because one that fails halfway has queued something, too.
        let mut queued = Queued { buffers: Some((queries, found)), stream: stream.clone() };
        if let Some((queries, found)) = &mut queued.buffers {
            let (queries, raw) = (queries.matrix(dim)?.into(), stream.as_raw());
            self.run_on_device(call, queries, &mut found.as_mut()?, params, raw)?;
        }
        Ok(queued)
    }

    /// Queues a search on a stream of another library and returns, as
    /// [`search_queued`](Self::search_queued) does.
    ///
    /// # Safety
    ///
    /// `stream` is a `cudaStream_t` of the device and of its primary context. Until it has reached this
    /// point, the queries stay unchanged and the results are used by nobody else, whatever `'a` is.
    ///
    /// # Errors
    ///
    /// As [`search_queued`](Self::search_queued); something may have been queued.
    pub unsafe fn search_on_stream<T: Element>(
        &self,
        queries: DeviceMatrix<'_, T>,
        found: &mut DeviceResultsMut<'_>,
        params: &SearchParams<'_>,
        stream: *mut c_void,
    ) -> Result<()> {
        self.run_on_device(sys::ann_search_batch, queries.into(), found, params, stream).map(drop)
    }

    /// As [`search_on_stream`](Self::search_on_stream), comparing with every row.
    ///
    /// # Safety
    ///
    /// As [`search_on_stream`](Self::search_on_stream).
    ///
    /// # Errors
    ///
    /// As [`search_on_stream`](Self::search_on_stream).
    pub unsafe fn search_exact_on_stream<T: Element>(
        &self,
        queries: DeviceMatrix<'_, T>,
        found: &mut DeviceResultsMut<'_>,
        params: &SearchParams<'_>,
        stream: *mut c_void,
    ) -> Result<()> {
        self.run_on_device(sys::ann_search_exact, queries.into(), found, params, stream).map(drop)
    }

    fn run_on_device(
        &self,
        call: SearchCall,
        queries: AnyMatrix<'_>,
        found: &mut DeviceResultsMut<'_>,
        params: &SearchParams<'_>,
        stream: *mut c_void,
    ) -> Result<SearchStats> {
        let (index, monitor) = (self.pointer(), Monitor::pointer(params.monitor));
        let params = sys::ann_search_params { stream, ..params.raw };
        // SAFETY: everything lives through the call, and on a stream as long as the callers promise.
        check(|error| unsafe {
            call(index, &queries.raw, &params, &mut found.raw, monitor, error)
        })?;
        Ok(SearchStats::of(&found.raw))
    }
}

/// As [`knn_graph`](crate::knn_graph), over rows in memory of a CUDA device.
///
/// # Errors
///
/// As [`knn_graph`](crate::knn_graph).
pub fn knn_graph_on_device<T: Element>(
    rows: DeviceMatrix<'_, T>,
    params: &KnnParams<'_>,
) -> Result<KnnGraph> {
    knn::owned(rows.into(), params)
}

/// A search that is queued on a stream, with the buffers that it reads and writes. They come back from
/// [`wait`](Self::wait); to drop it waits as well.
///
/// ```compile_fail,E0382
/// use gannet::cuda::{DeviceBuffer, DeviceResults, Stream};
/// # use gannet::{Device, Index, SearchParams};
/// # fn example(index: &Index<'_>, queries: DeviceBuffer<f32>, found: DeviceResults, stream: &Stream)
/// #     -> gannet::Result<()> {
/// let queued = index.search_queued(queries, 64, found, &SearchParams::new(), stream)?;
/// drop(queries); // they were given to the search
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Queued<T: Element> {
    buffers: Option<(DeviceBuffer<T>, DeviceResults)>,
    stream: Stream,
}

impl<T: Element> Queued<T> {
    /// Waits until the stream has done what is queued on it, and gives the buffers back.
    ///
    /// # Errors
    ///
    /// [`Status::DeviceLost`](crate::Status::DeviceLost) if a fault of the device has ended it; the buffers
    /// are gone then.
    pub fn wait(mut self) -> Result<(DeviceBuffer<T>, DeviceResults)> {
        let waited = self.stream.wait();
        let Some(buffers) = self.buffers.take() else { unreachable!("taken here only") };
        match waited {
            Ok(()) => Ok(buffers),
            Err(error) => {
                forget(buffers); // nobody knows who still writes to them
                Err(error)
            }
        }
    }
}

impl<T: Element> Drop for Queued<T> {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            if self.stream.wait().is_err() {
                forget(buffers); // nobody knows who still writes to them
            }
        }
    }
}
