//! Section 11 of the header.

use std::path::Path;
use std::ptr::{null, null_mut};

use crate::context::Context;
use crate::device::Device;
use crate::element::Element;
use crate::error::{check, Result};
use crate::files::{c_path, SaveParams};
use crate::macros::Raw;
use crate::matrix::{as_u32, check_len, zeros, AnyMatrix, Matrix};
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

/// k-NN lists with distances by ids of 64 bits: what [`knn_merge`] joins and files of lists hold.
#[derive(Debug, Clone, PartialEq)]
pub struct IdLists {
    k: usize,
    metric: Metric,
    first_id: u64,
    ids: Option<Vec<u64>>,
    neighbors: Vec<u64>,
    distances: Vec<f32>,
}

impl IdLists {
    /// Lists of `k` places a row: `neighbors` and `distances` are `[rows, k]`, nearest first, with
    /// [`ID_NONE`](crate::ID_NONE) and infinity in unused places. Row r has the id `first_id + r`.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument) where the two are no lists of `k`.
    pub fn new(
        k: usize,
        metric: Metric,
        first_id: u64,
        neighbors: Vec<u64>,
        distances: Vec<f32>,
    ) -> Result<Self> {
        let rows = neighbors.len().checked_div(k).unwrap_or(0);
        check_len("neighbors", neighbors.len(), rows, k)?;
        check_len("distances", distances.len(), rows, k)?;
        Ok(IdLists { k, metric, first_id, ids: None, neighbors, distances })
    }

    /// Lists of row numbers as lists of ids: row r gets `first_id + r`.
    pub fn of(graph: KnnGraph, metric: Metric, first_id: u64) -> Self {
        let id =
            |&row: &u32| if row == ROW_NONE { crate::ID_NONE } else { first_id + u64::from(row) };
        let neighbors = graph.neighbors.iter().map(id).collect();
        IdLists { k: graph.k, metric, first_id, ids: None, neighbors, distances: graph.distances }
    }

    /// Gives each row an id of its own.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument) unless there is one for each row.
    pub fn with_ids(mut self, ids: Vec<u64>) -> Result<Self> {
        check_len("ids", ids.len(), self.rows(), 1)?;
        self.ids = Some(ids);
        self.first_id = 0;
        Ok(self)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.neighbors.len().checked_div(self.k).unwrap_or(0)
    }

    /// Places of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// How the distances were measured.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The id of row 0 where the rows have no ids of their own.
    pub fn first_id(&self) -> u64 {
        self.first_id
    }

    /// The ids of the rows, if they are not numbers in a row.
    pub fn ids(&self) -> Option<&[u64]> {
        self.ids.as_deref()
    }

    /// `[rows, k]` ids, nearest first, [`ID_NONE`](crate::ID_NONE) in unused places at the end of a row.
    pub fn neighbors(&self) -> &[u64] {
        &self.neighbors
    }

    /// `[rows, k]` distances.
    pub fn distances(&self) -> &[f32] {
        &self.distances
    }

    /// What the library reads, and for lists that are made writes, during a call.
    fn raw(&self) -> Result<sys::ann_knn_lists> {
        Ok(sys::ann_knn_lists {
            k: as_u32(self.k, "k")?,
            rows: self.rows() as u64,
            metric: self.metric.raw(),
            first_id: self.first_id,
            ids: self.ids.as_ref().map_or(null_mut(), |ids| ids.as_ptr().cast_mut()),
            neighbors: self.neighbors.as_ptr().cast_mut(),
            distances: self.distances.as_ptr().cast_mut(),
            ..Default::default()
        })
    }

    /// The same of lists that a call fills.
    fn raw_mut(&mut self) -> Result<sys::ann_knn_lists> {
        Ok(sys::ann_knn_lists {
            ids: self.ids.as_mut().map_or(null_mut(), |ids| ids.as_mut_ptr()),
            neighbors: self.neighbors.as_mut_ptr(),
            distances: self.distances.as_mut_ptr(),
            ..self.raw()?
        })
    }

    /// Saves the lists to a file, replacing one that is there, as [`Index::save`](crate::Index::save) does.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument) also for lists that are none,
    /// [`Io`](crate::Status::Io), [`NoMemory`](crate::Status::NoMemory),
    /// [`Cancelled`](crate::Status::Cancelled), [`Deadline`](crate::Status::Deadline).
    pub fn save(&self, path: impl AsRef<Path>, params: &SaveParams<'_>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        let (lists, raw, monitor) = (self.raw()?, params.raw(), params.monitor_pointer());
        // SAFETY: everything lives through the call, which only reads the lists.
        check(|error| unsafe {
            sys::ann_knn_save(null(), &lists, path.as_ptr(), raw, monitor, error)
        })
    }

    /// Reads a file of lists, and checks every byte of it.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::Status::Io), [`Corrupt`](crate::Status::Corrupt),
    /// [`Version`](crate::Status::Version), [`NoMemory`](crate::Status::NoMemory).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{IdLists, Metric, SaveParams};
    ///
    /// # let path = std::env::temp_dir().join(format!("gannet-lists-{}", std::process::id()));
    /// let lists = IdLists::new(1, Metric::L2, 7, vec![8, 7], vec![1.0, 1.0])?;
    /// lists.save(&path, &SaveParams::new())?;
    /// assert_eq!(IdLists::open(&path)?, lists);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = c_path(path.as_ref())?;
        let mut raw = sys::ann_knn_lists::default();
        // SAFETY: without buffers only the struct is written.
        check(|error| unsafe {
            sys::ann_knn_load(null(), path.as_ptr(), &mut raw, null_mut(), error)
        })?;
        let (rows, k) = (raw.rows as usize, raw.k as usize);
        let mut lists = IdLists {
            k,
            metric: Metric::from_raw(raw.metric).unwrap_or(Metric::L2),
            first_id: raw.first_id,
            ids: if raw.has_ids != 0 { Some(zeros(rows, 1)?) } else { None },
            neighbors: zeros(rows, k)?,
            distances: zeros(rows, k)?,
        };
        if rows > 0 {
            let mut raw = lists.raw_mut()?;
            // SAFETY: the buffers have the file's rows and k, which the call checks again.
            check(|error| unsafe {
                sys::ann_knn_load(null(), path.as_ptr(), &mut raw, null_mut(), error)
            })?;
        }
        Ok(lists)
    }
}

/// Joins the k-NN lists of two sets of rows: those of both together, the first set's rows before the
/// second's. Only rows of different sets are compared. A list may name rows of neither set; they stay
/// if they are near enough, so that parts of a graph can be merged pair by pair.
///
/// # Errors
///
/// As [`knn_graph`]; [`InvalidArgument`](crate::Status::InvalidArgument) also for lists that are none,
/// with row and place.
///
/// # Examples
///
/// ```
/// use gannet::{knn_graph, knn_merge, IdLists, KnnParams, Matrix, Metric};
///
/// let (first, second) = (Matrix::new(&[0.0f32, 1.0], 1)?, Matrix::new(&[3.0, 5.0], 1)?);
/// let params = KnnParams::new(1);
/// let a = IdLists::of(knn_graph(first, &params)?, Metric::L2, 0);
/// let b = IdLists::of(knn_graph(second, &params)?, Metric::L2, 2);
/// let merged = knn_merge(first, &a, second, &b, &params)?;
/// assert_eq!(merged.neighbors(), [1, 0, 1, 2]);
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn knn_merge<T: Element>(
    first_rows: Matrix<'_, T>,
    first: &IdLists,
    second_rows: Matrix<'_, T>,
    second: &IdLists,
    params: &KnnParams<'_>,
) -> Result<IdLists> {
    let (first_rows, second_rows) = (AnyMatrix::from(first_rows), AnyMatrix::from(second_rows));
    let (k, rows) = (params.raw.k as usize, (first_rows.raw.rows + second_rows.raw.rows) as usize);
    let follow = first.ids.is_none()
        && second.ids.is_none()
        && Some(second.first_id) == first.first_id.checked_add(first.rows() as u64);
    let mut merged = IdLists {
        k,
        metric: first.metric,
        first_id: 0,
        ids: if follow { None } else { Some(zeros(rows, 1)?) },
        neighbors: zeros(rows, k)?,
        distances: zeros(rows, k)?,
    };
    let (first, second, mut out) = (first.raw()?, second.raw()?, merged.raw_mut()?);
    // Also where lists of no places have no rows of their own.
    out.rows = rows as u64;
    let (context, monitor) = (Context::pointer(params.context), Monitor::pointer(params.monitor));
    // SAFETY: everything lives through the call; what is given is only read, and the new lists have
    // [rows, k] places.
    check(|error| unsafe {
        let (a, b) = (&first_rows.raw, &second_rows.raw);
        sys::ann_knn_merge(context, a, &first, b, &second, &params.raw, &mut out, monitor, error)
    })?;
    merged.first_id = out.first_id;
    merged.metric = Metric::from_raw(out.metric).unwrap_or(merged.metric);
    Ok(merged)
}
