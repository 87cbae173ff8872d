//! Section 11 of the header.

use std::ptr::null_mut;

use crate::context::Context;
use crate::device::Device;
use crate::element::Element;
use crate::error::{check, Result};
use crate::matrix::{check_len, zeros, AnyMatrix, Matrix};
use crate::monitor::Monitor;
use crate::params::{KnnMethod, Metric};
use crate::sys;
use crate::ROW_NONE;

/// Settings of [`knn_graph`].
///
/// ```
/// use gannet::{KnnMethod, KnnParams, Metric};
///
/// let params = KnnParams::new(10).metric(Metric::Cosine).method(KnnMethod::Exact);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct KnnParams<'a> {
    raw: sys::ann_knn_params,
    context: Option<&'a Context>,
    monitor: Option<&'a Monitor>,
}

impl<'a> KnnParams<'a> {
    /// `k` neighbours for every row.
    pub fn new(k: u32) -> Self {
        let raw = sys::ann_knn_params { k, ..Default::default() };
        KnnParams { raw, context: None, monitor: None }
    }

    setters! {
        /// How distances are measured.
        metric: Metric;
        /// How the graph is found.
        method: KnnMethod;
        /// New and old neighbours of a row that meet in one round of NN-Descent.
        samples: u32;
        /// Rounds of NN-Descent at most.
        iterations: u32;
        /// NN-Descent ends when a round improves fewer than this share of all list entries.
        convergence: f32;
        /// Threads to use.
        threads: u32;
        /// Seed of every random choice.
        seed: u64;
        /// Where the lists are found; they are the same from every device.
        device: Device;
    }

    /// Takes the bounds of a context.
    pub fn context(mut self, context: &'a Context) -> Self {
        self.context = Some(context);
        self
    }

    /// Lets other threads watch and cancel the call.
    pub fn monitor(mut self, monitor: &'a Monitor) -> Self {
        self.monitor = Some(monitor);
        self
    }
}

/// The nearest other rows of every row.
#[derive(Debug, Clone, PartialEq)]
pub struct KnnGraph {
    k: usize,
    neighbors: Vec<u32>,
    distances: Vec<f32>,
}

impl KnnGraph {
    /// Neighbours per row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// `[rows, k]` row numbers, nearest first, [`ROW_NONE`] in unused places at the end of a row.
    pub fn neighbors(&self) -> &[u32] {
        &self.neighbors
    }

    /// `[rows, k]` distances.
    pub fn distances(&self) -> &[f32] {
        &self.distances
    }

    /// The neighbours of one row, unused places left out; empty if there is no such row.
    pub fn of(&self, row: usize) -> &[u32] {
        used(&self.neighbors, row, self.k)
    }
}

/// The used places of a row in `[rows, columns]` row numbers.
pub(crate) fn used(numbers: &[u32], row: usize, columns: usize) -> &[u32] {
    let begin = row.saturating_mul(columns);
    let places = numbers.get(begin..begin.saturating_add(columns)).unwrap_or_default();
    places.split(|&number| number == ROW_NONE).next().unwrap_or_default()
}

/// Finds the k nearest other rows of every row. By cells and by NN-Descent the lists are
/// approximate and their distances still exact.
///
/// # Errors
///
/// [`InvalidArgument`](crate::Status::InvalidArgument), [`Limit`](crate::Status::Limit),
/// [`Unsupported`](crate::Status::Unsupported), [`NotFinite`](crate::Status::NotFinite) with the
/// place of the value, [`NoMemory`](crate::Status::NoMemory),
/// [`NoDevice`](crate::Status::NoDevice), [`DeviceNoMemory`](crate::Status::DeviceNoMemory),
/// [`DeviceLost`](crate::Status::DeviceLost), [`Cancelled`](crate::Status::Cancelled),
/// [`Deadline`](crate::Status::Deadline).
///
/// # Examples
///
/// ```
/// use gannet::{knn_graph, KnnParams, Matrix};
///
/// let graph = knn_graph(Matrix::new(&[0.0f32, 1.0, 3.0], 1)?, &KnnParams::new(1))?;
/// assert_eq!(graph.neighbors(), [1, 0, 1]);
/// assert_eq!(graph.distances(), [1.0, 1.0, 4.0]);
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn knn_graph<T: Element>(rows: Matrix<'_, T>, params: &KnnParams<'_>) -> Result<KnnGraph> {
    owned(rows.into(), params)
}

pub(crate) fn owned(rows: AnyMatrix<'_>, params: &KnnParams<'_>) -> Result<KnnGraph> {
    let (k, count) = (params.raw.k as usize, rows.raw.rows as usize);
    let mut graph = KnnGraph { k, neighbors: zeros(count, k)?, distances: zeros(count, k)? };
    run(rows, params, &mut graph.neighbors, Some(&mut graph.distances))?;
    Ok(graph)
}

/// As [`knn_graph`], into buffers of the caller: `[rows, k]` each.
///
/// # Errors
///
/// As [`knn_graph`]; [`InvalidArgument`](crate::Status::InvalidArgument) also for buffers of other
/// lengths.
///
/// # Examples
///
/// ```
/// use gannet::{knn_graph_into, KnnParams, Matrix};
///
/// let mut neighbors = [0; 3];
/// knn_graph_into(Matrix::new(&[0u8, 1, 3], 1)?, &KnnParams::new(1), &mut neighbors, None)?;
/// assert_eq!(neighbors, [1, 0, 1]);
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn knn_graph_into<T: Element>(
    rows: Matrix<'_, T>,
    params: &KnnParams<'_>,
    neighbors: &mut [u32],
    distances: Option<&mut [f32]>,
) -> Result<()> {
    run(rows.into(), params, neighbors, distances)
}

pub(crate) fn run(
    rows: AnyMatrix<'_>,
    params: &KnnParams<'_>,
    neighbors: &mut [u32],
    distances: Option<&mut [f32]>,
) -> Result<()> {
    let (k, count) = (params.raw.k as usize, rows.raw.rows as usize);
    check_len("neighbors", neighbors.len(), count, k)?;
    if let Some(distances) = &distances {
        check_len("distances", distances.len(), count, k)?;
    }
    let context = Context::pointer(params.context);
    let monitor = Monitor::pointer(params.monitor);
    let neighbors = neighbors.as_mut_ptr();
    let distances = distances.map_or(null_mut(), |distances| distances.as_mut_ptr());
    // SAFETY: everything lives through the call, and both buffers have [rows, k] places.
    check(|error| unsafe {
        let (rows, params) = (&rows.raw, &params.raw);
        sys::ann_knn_graph(context, rows, params, neighbors, distances, monitor, error)
    })
}
