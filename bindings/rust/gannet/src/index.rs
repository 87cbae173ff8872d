//! Sections 8, 9 and 10 of the header: the index.

use std::marker::PhantomData;
use std::ptr::{null, null_mut, NonNull};

use crate::context::{not_null, Context};
use crate::element::{Element, ElementType};
use crate::error::{check, Error, Result, Status};
use crate::knn::used;
use crate::macros::Raw;
use crate::matrix::{as_u32, check_len, zeros, AnyMatrix, Matrix};
use crate::monitor::Monitor;
use crate::params::{BuildParams, CodeKind, GraphKind, IndexParams, Metric, SearchParams};
use crate::results::{Results, ResultsMut, SearchStats};
use crate::sys;

/// Vectors and the graph over them. Made empty, built once, then searched from any number of
/// threads.
///
/// `'rows` is the life of rows that [`build_borrowed`](Self::build_borrowed) borrows. The compiler
/// keeps them in place for as long as the index lives:
///
/// ```compile_fail,E0597
/// use gannet::{BuildParams, Index, IndexParams, Matrix};
///
/// let index = Index::new(&IndexParams::new(1))?;
/// {
///     let rows = vec![0.0f32, 5.0, 6.0];
///     index.build_borrowed(Matrix::new(&rows, 1)?, None, &BuildParams::new())?;
/// } // `rows` does not live long enough
/// index.info()?;
/// # Ok::<(), gannet::Error>(())
/// ```
///
/// Nor does an index of a longer life take rows of a shorter one:
///
/// ```compile_fail,E0597
/// # use gannet::{BuildParams, Index, Matrix};
/// fn build(index: &Index<'static>) -> gannet::Result<()> {
///     let rows = vec![0.0f32, 5.0, 6.0];
///     index.build_borrowed(Matrix::new(&rows, 1)?, None, &BuildParams::new())
/// }
/// ```
///
/// The same holds for the bytes of a file that [`open_borrowed`](Self::open_borrowed) uses in place:
///
/// ```compile_fail,E0597
/// use gannet::{Index, OpenParams};
///
/// let index = {
///     let file = vec![0u8; 10_000];
///     Index::open_borrowed(&file, &OpenParams::new())?
/// }; // `file` does not live long enough
/// index.info()?;
/// # Ok::<(), gannet::Error>(())
/// ```
///
/// An index that copies its rows is an `Index<'static>` if one likes:
///
/// ```
/// struct Service {
///     index: gannet::Index<'static>,
/// }
/// ```
#[derive(Debug)]
pub struct Index<'rows> {
    raw: NonNull<sys::ann_index>,
    // Invariant: otherwise a reference to an Index<'static> could pass for one to an index with
    // a shorter life, and be built over rows that die before it.
    rows: PhantomData<fn(&'rows ()) -> &'rows ()>,
}

// SAFETY: any number of threads may pass a handle as const. The one call that takes it as
// non-const, ann_build, answers ANN_BUSY to a second one and is safe beside searches.
unsafe impl Send for Index<'_> {}
unsafe impl Sync for Index<'_> {}

/// The two entries that search.
pub(crate) type SearchCall = unsafe extern "C" fn(
    *const sys::ann_index,
    *const sys::ann_matrix,
    *const sys::ann_search_params,
    *mut sys::ann_results,
    *mut sys::ann_monitor,
    *mut sys::ann_error,
) -> sys::ann_status;

impl<'rows> Index<'rows> {
    /// Makes an empty index.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument), [`Limit`](crate::Status::Limit) for a
    /// dim above 32,768, [`NoMemory`](crate::Status::NoMemory).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{Index, IndexParams, Metric};
    ///
    /// let index = Index::new(&IndexParams::new(64).metric(Metric::InnerProduct))?;
    /// assert!(!index.info()?.built);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn new(params: &IndexParams) -> Result<Self> {
        Self::create(None, params)
    }

    /// Makes an empty index within the bounds of a context.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_context(context: &Context, params: &IndexParams) -> Result<Self> {
        Self::create(Some(context), params)
    }

    fn create(context: Option<&Context>, params: &IndexParams) -> Result<Self> {
        let context = Context::pointer(context);
        // SAFETY: everything lives through the call.
        Self::made(|raw, error| unsafe { sys::ann_index_create(context, &params.raw, raw, error) })
    }

    /// The index that a call makes.
    pub(crate) fn made(
        call: impl FnOnce(*mut *mut sys::ann_index, *mut sys::ann_error) -> sys::ann_status,
    ) -> Result<Self> {
        let mut raw = null_mut();
        check(|error| call(&mut raw, error))?;
        Ok(Index { raw: not_null(raw)?, rows: PhantomData })
    }

    /// The pointer for a call that leaves the index as it is.
    pub(crate) fn pointer(&self) -> *const sys::ann_index {
        self.raw.as_ptr()
    }

    /// Builds the index over a copy of `rows`, whose ids are 0, 1, 2, ... Once in its life; after
    /// an error the index is as empty as before and can be built again.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument), [`Limit`](crate::Status::Limit),
    /// [`Unsupported`](crate::Status::Unsupported), [`NotFinite`](crate::Status::NotFinite) with
    /// the place of the value, [`State`](crate::Status::State) if the index is built already,
    /// [`Busy`](crate::Status::Busy) if another thread is building it,
    /// [`NoMemory`](crate::Status::NoMemory), [`NoDevice`](crate::Status::NoDevice),
    /// [`DeviceNoMemory`](crate::Status::DeviceNoMemory),
    /// [`DeviceLost`](crate::Status::DeviceLost), [`Cancelled`](crate::Status::Cancelled),
    /// [`Deadline`](crate::Status::Deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let rows = vec![7u8; 300];
    /// let index = Index::new(&IndexParams::new(3))?;
    /// index.build(Matrix::new(&rows, 3)?, &BuildParams::new().degree(16))?;
    /// assert_eq!(index.info()?.rows, 100);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn build<T: Element>(&self, rows: Matrix<'_, T>, params: &BuildParams<'_>) -> Result<()> {
        self.run_build(rows, None, params, sys::ANN_ROWS_COPY)
    }

    /// As [`build`](Self::build), with an id for each row: distinct numbers below
    /// [`ID_NONE`](crate::ID_NONE).
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build); [`InvalidArgument`](crate::Status::InvalidArgument) also for ids
    /// that are not distinct, or not one a row.
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams};
    ///
    /// let index = Index::new(&IndexParams::new(1))?;
    /// let rows = Matrix::new(&[0.0f32, 5.0], 1)?;
    /// index.build_with_ids(rows, &[700, 900], &BuildParams::new())?;
    /// let found = index.search(Matrix::one(&[4.0f32])?, 1, &SearchParams::new())?;
    /// assert_eq!(found.ids(), [900]);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn build_with_ids<T: Element>(
        &self,
        rows: Matrix<'_, T>,
        ids: &[u64],
        params: &BuildParams<'_>,
    ) -> Result<()> {
        self.run_build(rows, Some(ids), params, sys::ANN_ROWS_COPY)
    }

    /// Builds the index over `rows` where they lie, without a copy. The stored element is theirs.
    ///
    /// # Errors
    ///
    /// As [`build_with_ids`](Self::build_with_ids).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams};
    ///
    /// let rows = vec![0.0f32, 5.0, 6.0];
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build_borrowed(Matrix::new(&rows, 1)?, None, &BuildParams::new())?;
    /// let found = index.search(Matrix::one(&[4.0f32])?, 1, &SearchParams::new())?;
    /// assert_eq!(found.ids(), [1]);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn build_borrowed<T: Element>(
        &self,
        rows: Matrix<'rows, T>,
        ids: Option<&[u64]>,
        params: &BuildParams<'_>,
    ) -> Result<()> {
        self.run_build(rows, ids, params, sys::ANN_ROWS_BORROW)
    }

    pub(crate) fn run_build<'a>(
        &self,
        rows: impl Into<AnyMatrix<'a>>,
        ids: Option<&[u64]>,
        params: &BuildParams<'_>,
        rows_mode: u32,
    ) -> Result<()> {
        let rows = rows.into().raw;
        let count = rows.rows as usize;
        if let Some(ids) = ids {
            check_len("ids", ids.len(), count, 1)?;
        }
        let ids = ids.map_or(null(), |ids| ids.as_ptr());
        let mut raw = params.raw_for(count)?;
        raw.rows_mode = rows_mode as i32;
        let (index, monitor) = (self.raw.as_ptr(), Monitor::pointer(params.monitor));
        // SAFETY: everything lives through the call; rows that are borrowed live for 'rows.
        check(|error| unsafe { sys::ann_build(index, &rows, ids, &raw, monitor, error) })
    }

    /// Finds `k` near rows for each query. For an index of floats queries may have any element,
    /// for one of `i8` or `u8` the same.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument), [`Limit`](crate::Status::Limit),
    /// [`Unsupported`](crate::Status::Unsupported), [`State`](crate::Status::State) before the
    /// build, [`NoDevice`](crate::Status::NoDevice), [`NoMemory`](crate::Status::NoMemory),
    /// [`DeviceNoMemory`](crate::Status::DeviceNoMemory),
    /// [`DeviceLost`](crate::Status::DeviceLost), [`Corrupt`](crate::Status::Corrupt) if an index
    /// that was opened lazily meets damage in its file, [`Cancelled`](crate::Status::Cancelled),
    /// [`Deadline`](crate::Status::Deadline). A query with NaN or infinity is reported by its
    /// [`QueryStatus`](crate::QueryStatus).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams};
    ///
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&[0.0f32, 5.0, 6.0], 1)?, &BuildParams::new())?;
    /// let found = index.search(Matrix::one(&[4.0f32])?, 2, &SearchParams::new().recall(0.99))?;
    /// assert_eq!(found.ids(), [1, 2]);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn search<T: Element>(
        &self,
        queries: Matrix<'_, T>,
        k: usize,
        params: &SearchParams<'_>,
    ) -> Result<Results> {
        self.run_owned(sys::ann_search_batch, queries, k, params)
    }

    /// As [`search`](Self::search), into buffers of the caller; see [`ResultsMut`]. A search that
    /// is cancelled has filled some rows.
    ///
    /// # Errors
    ///
    /// As [`search`](Self::search); [`InvalidArgument`](crate::Status::InvalidArgument) also for
    /// buffers of other lengths.
    pub fn search_into<T: Element>(
        &self,
        queries: Matrix<'_, T>,
        found: &mut ResultsMut<'_>,
        params: &SearchParams<'_>,
    ) -> Result<SearchStats> {
        self.run(sys::ann_search_batch, queries, found, params)
    }

    /// Finds the `k` nearest rows for each query by comparing with every row. Of `params`, the
    /// procedure, recall and beam are not used.
    ///
    /// # Errors
    ///
    /// As [`search`](Self::search).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, GraphKind, Index, IndexParams, Matrix, SearchParams};
    ///
    /// let index = Index::new(&IndexParams::new(1))?;
    /// let params = BuildParams::new().graph(GraphKind::None);
    /// index.build(Matrix::new(&[0i8, 5, -6], 1)?, &params)?;
    /// let found = index.search_exact(Matrix::one(&[-2i8])?, 3, &SearchParams::new())?;
    /// assert_eq!(found.ids(), [0, 2, 1]);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn search_exact<T: Element>(
        &self,
        queries: Matrix<'_, T>,
        k: usize,
        params: &SearchParams<'_>,
    ) -> Result<Results> {
        self.run_owned(sys::ann_search_exact, queries, k, params)
    }

    /// As [`search_exact`](Self::search_exact), into buffers of the caller.
    ///
    /// # Errors
    ///
    /// As [`search_into`](Self::search_into).
    pub fn search_exact_into<T: Element>(
        &self,
        queries: Matrix<'_, T>,
        found: &mut ResultsMut<'_>,
        params: &SearchParams<'_>,
    ) -> Result<SearchStats> {
        self.run(sys::ann_search_exact, queries, found, params)
    }

    fn run_owned<T: Element>(
        &self,
        call: SearchCall,
        queries: Matrix<'_, T>,
        k: usize,
        params: &SearchParams<'_>,
    ) -> Result<Results> {
        let mut found = Results::zeros(queries.rows(), k)?;
        found.stats = self.run(call, queries, &mut found.as_mut(), params)?;
        Ok(found)
    }

    fn run<T: Element>(
        &self,
        call: SearchCall,
        queries: Matrix<'_, T>,
        found: &mut ResultsMut<'_>,
        params: &SearchParams<'_>,
    ) -> Result<SearchStats> {
        let mut raw = found.raw(queries.rows())?;
        let (index, queries, monitor) =
            (self.raw.as_ptr(), queries.raw(), Monitor::pointer(params.monitor));
        // SAFETY: everything lives through the call, and the buffers have [rows, k] places.
        check(|error| unsafe { call(index, &queries, &params.raw, &mut raw, monitor, error) })?;
        Ok(SearchStats::of(&raw))
    }

    /// The beam that [`search`](Self::search) would use for this k and recall (`None`: the recall
    /// that the library chooses).
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::Status::InvalidArgument), [`State`](crate::Status::State) before
    /// the build, [`Unsupported`](crate::Status::Unsupported) without a graph.
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let rows: Vec<f32> = (0..400).map(|i| i as f32).collect();
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&rows, 1)?, &BuildParams::new())?;
    /// assert!(index.beam(10, Some(0.99))? >= index.beam(10, Some(0.8))?);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn beam(&self, k: usize, recall: Option<f32>) -> Result<u32> {
        let (k, recall, mut beam) = (as_u32(k, "k")?, recall.unwrap_or(0.0), 0);
        let index = self.raw.as_ptr();
        // SAFETY: beam lives through the call.
        check(|error| unsafe { sys::ann_index_beam(index, k, recall, &mut beam, error) })?;
        Ok(beam)
    }

    /// Reads the state, built or not.
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn info(&self) -> Result<IndexInfo> {
        let mut raw = sys::ann_index_info::default();
        // SAFETY: raw lives through the call.
        check(|error| unsafe { sys::ann_index_get_info(self.raw.as_ptr(), &mut raw, error) })?;
        Ok(IndexInfo::from_raw(&raw))
    }

    /// The vector with an id, if a row has it. `T` must be the stored element.
    ///
    /// # Errors
    ///
    /// [`State`](crate::Status::State) before the build,
    /// [`InvalidArgument`](crate::Status::InvalidArgument) if `T` is not the stored element,
    /// [`Corrupt`](crate::Status::Corrupt) as [`search`](Self::search).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let index = Index::new(&IndexParams::new(2))?;
    /// index.build(Matrix::new(&[1u8, 2, 3, 4], 2)?, &BuildParams::new())?;
    /// assert_eq!(index.get::<u8>(1)?, Some(vec![3, 4]));
    /// assert_eq!(index.get::<u8>(2)?, None);
    /// assert!(index.get::<f32>(1).is_err());
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn get<T: Element>(&self, id: u64) -> Result<Option<Vec<T>>> {
        let mut vector = zeros(self.info()?.dim, 1)?;
        Ok(self.get_into::<T>(id, &mut vector)?.then_some(vector))
    }

    /// As [`get`](Self::get), into a buffer of at least `dim` places. Says whether a row has the
    /// id; if not, nothing is written.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); [`InvalidArgument`](crate::Status::InvalidArgument) also for a buffer
    /// that is too short.
    pub fn get_into<T: Element>(&self, id: u64, vector: &mut [T]) -> Result<bool> {
        if !self.contains(id)? {
            return Ok(false);
        }
        self.check_stored::<T>()?;
        self.run_get(id, vector.as_mut_ptr().cast(), size_of_val(vector))
    }

    /// Whether a row has the id.
    ///
    /// # Errors
    ///
    /// [`State`](crate::Status::State) before the build, [`Corrupt`](crate::Status::Corrupt) as
    /// [`search`](Self::search).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let index = Index::new(&IndexParams::new(2))?;
    /// index.build_with_ids(Matrix::new(&[1u8, 2], 2)?, &[55], &BuildParams::new())?;
    /// assert!(index.contains(55)? && !index.contains(0)?);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn contains(&self, id: u64) -> Result<bool> {
        self.run_get(id, null_mut(), 0)
    }

    /// The vectors of many ids, one behind the other, in the order of `ids`; an id may be named more
    /// than once. `T` must be the stored element. An id that no row has is an error, whose
    /// [`row`](Error::row) is its place in `ids`.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); [`InvalidArgument`](crate::Status::InvalidArgument) also for an id
    /// that no row has; [`NoMemory`](crate::Status::NoMemory).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let index = Index::new(&IndexParams::new(2))?;
    /// let rows = Matrix::new(&[1u8, 2, 3, 4], 2)?;
    /// index.build_with_ids(rows, &[70, 80], &BuildParams::new())?;
    /// assert_eq!(index.get_batch::<u8>(&[80, 70, 80])?, [3, 4, 1, 2, 3, 4]);
    /// assert_eq!(index.get_batch::<u8>(&[80, 0]).unwrap_err().row(), Some(1));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn get_batch<T: Element>(&self, ids: &[u64]) -> Result<Vec<T>> {
        let mut vectors = zeros(ids.len(), self.info()?.dim)?;
        self.check_stored::<T>()?;
        self.run_get_batch(ids, &mut vectors, null_mut())?;
        Ok(vectors)
    }

    /// As [`get_batch`](Self::get_batch), into buffers of the caller: `vectors` is `[ids, dim]` and
    /// `found` `[ids]`. Where no row has the id, `found` says so, and the vector's place stays as it
    /// was.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); [`InvalidArgument`](crate::Status::InvalidArgument) also for buffers
    /// of other lengths.
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&[0.5f32, 1.5], 1)?, &BuildParams::new())?;
    /// let (mut vectors, mut found) = ([-1.0f32; 3], [false; 3]);
    /// index.get_batch_into(&[1, 2, 0], &mut vectors, &mut found)?;
    /// assert_eq!((vectors, found), ([1.5, -1.0, 0.5], [true, false, true]));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn get_batch_into<T: Element>(
        &self,
        ids: &[u64],
        vectors: &mut [T],
        found: &mut [bool],
    ) -> Result<()> {
        check_len("found", found.len(), ids.len(), 1)?;
        check_len("vectors", vectors.len(), ids.len(), self.info()?.dim)?;
        self.check_stored::<T>()?;
        let mut numbers: Vec<i32> = zeros(ids.len(), 1)?;
        self.run_get_batch(ids, vectors, numbers.as_mut_ptr())?;
        for (found, number) in found.iter_mut().zip(numbers) {
            *found = number != 0;
        }
        Ok(())
    }

    /// `found` is null or has a place for each id.
    fn run_get_batch<T: Element>(
        &self,
        ids: &[u64],
        vectors: &mut [T],
        found: *mut i32,
    ) -> Result<()> {
        let (index, count, bytes) = (self.raw.as_ptr(), ids.len() as u64, size_of_val(vectors));
        let vectors = vectors.as_mut_ptr().cast();
        // SAFETY: `vectors` has `bytes` bytes, `ids` and `found` have `count` places.
        check(|error| unsafe {
            let ids = ids.as_ptr();
            sys::ann_index_get_batch(index, ids, count, vectors, bytes as u64, found, error)
        })
    }

    /// The library cannot see what a buffer for vectors holds.
    fn check_stored<T: Element>(&self) -> Result<()> {
        let info = self.info()?;
        if !info.built || info.element == Some(T::TYPE) {
            return Ok(());
        }
        let stored = info.element.map_or("another element".into(), |element| element.to_string());
        let text = format!("the index stores {stored}, not {}", T::TYPE);
        Err(Error::new(Status::InvalidArgument, text))
    }

    /// The ids of all rows, in the order of the rows of the build.
    ///
    /// # Errors
    ///
    /// [`State`](crate::Status::State) before the build, [`NoMemory`](crate::Status::NoMemory),
    /// [`Corrupt`](crate::Status::Corrupt) as [`search`](Self::search).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let index = Index::new(&IndexParams::new(1))?;
    /// let rows = Matrix::new(&[0.5f32, 1.5], 1)?;
    /// index.build_with_ids(rows, &[900, 70], &BuildParams::new())?;
    /// assert_eq!(index.ids()?, [900, 70]);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn ids(&self) -> Result<Vec<u64>> {
        let rows = usize::try_from(self.info()?.rows).unwrap_or(usize::MAX);
        let mut ids = zeros(rows, 1)?;
        self.ids_into(0, &mut ids)?;
        Ok(ids)
    }

    /// Fills `ids` with the ids of the rows from `first` on: for large indexes in pieces.
    ///
    /// # Errors
    ///
    /// [`State`](crate::Status::State) before the build,
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for rows beyond the last,
    /// [`Corrupt`](crate::Status::Corrupt) as [`search`](Self::search).
    pub fn ids_into(&self, first: usize, ids: &mut [u64]) -> Result<()> {
        let (index, first, count) = (self.raw.as_ptr(), first as u64, ids.len() as u64);
        // SAFETY: `ids` has `count` places.
        check(|error| unsafe { sys::ann_index_ids(index, first, count, ids.as_mut_ptr(), error) })
    }

    fn run_get(&self, id: u64, vector: *mut std::ffi::c_void, bytes: usize) -> Result<bool> {
        let (index, bytes, mut found) = (self.raw.as_ptr(), bytes as u64, 0);
        // SAFETY: `vector` is null or has `bytes` bytes; found lives through the call.
        check(|error| unsafe { sys::ann_index_get(index, id, vector, bytes, &mut found, error) })?;
        Ok(found != 0)
    }

    /// A copy of the search graph.
    ///
    /// # Errors
    ///
    /// [`State`](crate::Status::State) before the build,
    /// [`Unsupported`](crate::Status::Unsupported) without a graph,
    /// [`NoMemory`](crate::Status::NoMemory), [`Corrupt`](crate::Status::Corrupt) as
    /// [`search`](Self::search).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let rows: Vec<f32> = (0..100).map(|i| i as f32).collect();
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&rows, 1)?, &BuildParams::new().degree(8))?;
    /// let graph = index.graph()?;
    /// assert_eq!(graph.edges().len(), 100 * graph.degree());
    /// assert!(graph.of(50).len() <= graph.degree());
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn graph(&self) -> Result<Graph> {
        let degree = self.run_graph(null_mut(), 0)? as usize;
        let rows = usize::try_from(self.info()?.rows).unwrap_or(usize::MAX);
        let mut graph = Graph { degree, edges: zeros(rows, degree)? };
        self.graph_into(&mut graph.edges)?;
        Ok(graph)
    }

    /// As [`graph`](Self::graph), into a buffer of at least `[rows, degree]` places. Returns the
    /// degree.
    ///
    /// # Errors
    ///
    /// As [`graph`](Self::graph); [`InvalidArgument`](crate::Status::InvalidArgument) also for a
    /// buffer that is too short.
    pub fn graph_into(&self, edges: &mut [u32]) -> Result<usize> {
        Ok(self.run_graph(edges.as_mut_ptr(), edges.len())? as usize)
    }

    fn run_graph(&self, edges: *mut u32, capacity: usize) -> Result<u32> {
        let (index, capacity, mut degree) = (self.raw.as_ptr(), capacity as u64, 0);
        // SAFETY: `edges` is null or has `capacity` places; degree lives through the call.
        check(|error| unsafe { sys::ann_index_graph(index, edges, capacity, &mut degree, error) })?;
        Ok(degree)
    }

    /// Measures the graph: how well a search can move on it.
    ///
    /// # Errors
    ///
    /// As [`graph`](Self::graph).
    ///
    /// # Examples
    ///
    /// ```
    /// use gannet::{BuildParams, Index, IndexParams, Matrix};
    ///
    /// let rows: Vec<f32> = (0..100).map(|i| i as f32).collect();
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(Matrix::new(&rows, 1)?, &BuildParams::new())?;
    /// assert_eq!(index.graph_stats()?.unreachable, 0);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn graph_stats(&self) -> Result<GraphStats> {
        self.graph_stats_over(1000)
    }

    /// The same with `two_hop_mean` over that many rows, at most all.
    ///
    /// # Errors
    ///
    /// As [`graph`](Self::graph).
    pub fn graph_stats_over(&self, two_hop_rows: u32) -> Result<GraphStats> {
        let mut raw = sys::ann_graph_stats { two_hop_rows, ..Default::default() };
        // SAFETY: raw lives through the call.
        check(|error| unsafe { sys::ann_index_graph_stats(self.raw.as_ptr(), &mut raw, error) })?;
        Ok(GraphStats::from_raw(&raw))
    }
}

impl Drop for Index<'_> {
    fn drop(&mut self) {
        // SAFETY: made by ann_index_create and freed once; calls that use it borrow it.
        unsafe { sys::ann_index_free(self.raw.as_ptr()) }
    }
}

/// State of an index.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct IndexInfo {
    /// Columns.
    pub dim: usize,
    /// The metric. `None` if it is one that this crate does not know.
    pub metric: Option<Metric>,
    /// The element as stored. `None` before the build if it was left open.
    pub element: Option<ElementType>,
    /// Whether the index is built.
    pub built: bool,
    /// The graph. `None` before the build.
    pub graph: Option<GraphKind>,
    /// Number of rows.
    pub rows: u64,
    /// Edges per row of the search graph.
    pub degree: u32,
    /// Rows where searches may start.
    pub entry_points: u32,
    /// Bytes of host memory held, borrowed rows not counted.
    pub memory_bytes: u64,
    /// Seed of the build.
    pub seed: u64,
    /// Wall time of the build, calibration included.
    pub build_seconds: f64,
    /// Of that, calibration.
    pub calibrate_seconds: f64,
    /// The highest mean recall@10 seen while calibrating; 0: none was made.
    pub recall_max: f32,
    /// Edges spent to make every row reachable.
    pub repaired_edges: u32,
    /// Rounds that NN-Descent ran, or that cells needed to look at neighbours of neighbours; 0:
    /// another way or none.
    pub knn_iterations: u32,
    /// Share of the true neighbours of a sample of rows that the lists under the graph hold, where
    /// they were found by cells; 0: not measured, or the index was opened from a file.
    pub knn_share: f32,
    /// The form of rows that walks compare. `None` without a graph.
    pub codes: Option<CodeKind>,
    /// Of [`CodeKind::Scaled`], the centres that rows are coded about; else 0.
    pub code_centres: u32,
    /// Bytes that a walk reads of a row.
    pub code_bytes: u32,
    /// Share of the true 10 nearest of a sample that are among the first 10 by code, as the build has measured it;
    /// negative: not measured.
    pub code_first_ten: f32,
    /// The same among the first 20.
    pub code_first_twenty: f32,
    /// The same of the tenth of the sample that fares worst.
    pub code_worst_twenty: f32,
}

impl IndexInfo {
    fn from_raw(raw: &sys::ann_index_info) -> Self {
        IndexInfo {
            dim: raw.dim as usize,
            metric: Metric::from_raw(raw.metric),
            element: ElementType::from_raw(raw.element),
            built: raw.built != 0,
            graph: GraphKind::from_raw(raw.graph),
            rows: raw.rows,
            degree: raw.degree,
            entry_points: raw.entry_points,
            memory_bytes: raw.memory_bytes,
            seed: raw.seed,
            build_seconds: raw.build_seconds,
            calibrate_seconds: raw.calibrate_seconds,
            recall_max: raw.recall_max,
            repaired_edges: raw.repaired_edges,
            knn_iterations: raw.knn_iterations,
            knn_share: raw.knn_share,
            codes: CodeKind::from_raw(raw.codes),
            code_centres: raw.code_centres,
            code_bytes: raw.code_bytes,
            code_first_ten: raw.code_first_ten,
            code_first_twenty: raw.code_first_twenty,
            code_worst_twenty: raw.code_worst_twenty,
        }
    }
}

/// A copy of a search graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    degree: usize,
    edges: Vec<u32>,
}

impl Graph {
    /// Places for edges per row.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// `[rows, degree]` row numbers (not ids), [`ROW_NONE`](crate::ROW_NONE) in unused places.
    pub fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// The edges of one row, unused places left out; empty if there is no such row.
    pub fn of(&self, row: usize) -> &[u32] {
        used(&self.edges, row, self.degree)
    }
}

/// How well a search can move on a graph.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GraphStats {
    /// Places for edges per row.
    pub degree: u32,
    /// Number of rows.
    pub rows: u64,
    /// Places used.
    pub edges: u64,
    /// Rows that no path from an entry point reaches.
    pub unreachable: u64,
    /// Parts, edges taken both ways.
    pub weak_components: u64,
    /// Parts in which each row reaches each other.
    pub strong_components: u64,
    /// Rows of the largest of those.
    pub largest_strong: u64,
    /// Fewest edges into a row.
    pub in_degree_min: u32,
    /// Most edges into a row.
    pub in_degree_max: u32,
    /// Mean number of distinct rows within two edges, over a sample.
    pub two_hop_mean: f64,
    /// For TSDG, edges of the k-NN lists; this and the next three are 0 of an index from a file.
    pub knn_edges: u64,
    /// Edges that stage one has kept.
    pub relaxed_edges: u64,
    /// The same with reverse edges.
    pub joined_edges: u64,
    /// Edges with an occlusion factor below the bound.
    pub soft_edges: u64,
    /// Distinct occlusion factors of edges; 0: none.
    pub occlusion_levels: u32,
}

impl GraphStats {
    fn from_raw(raw: &sys::ann_graph_stats) -> Self {
        GraphStats {
            degree: raw.degree,
            rows: raw.rows,
            edges: raw.edges,
            unreachable: raw.unreachable,
            weak_components: raw.weak_components,
            strong_components: raw.strong_components,
            largest_strong: raw.largest_strong,
            in_degree_min: raw.in_degree_min,
            in_degree_max: raw.in_degree_max,
            two_hop_mean: raw.two_hop_mean,
            knn_edges: raw.knn_edges,
            relaxed_edges: raw.relaxed_edges,
            joined_edges: raw.joined_edges,
            soft_edges: raw.soft_edges,
            occlusion_levels: raw.occlusion_levels,
        }
    }
}

/// The memory and time that a build will need.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Plan {
    /// Threads that the build would use.
    pub threads: u32,
    /// Bytes held when built.
    pub index_bytes: u64,
    /// Bytes held at most while building; an upper bound.
    pub peak_bytes: u64,
    /// A guess at the wall time; rows without structure may take 20 times as long.
    pub seconds: f64,
    /// Bytes of a CUDA device held at most while building on it; else 0.
    pub device_bytes: u64,
}

/// Plans a build of `rows` rows of `element` without doing it.
///
/// # Errors
///
/// [`InvalidArgument`](crate::Status::InvalidArgument), [`Limit`](crate::Status::Limit),
/// [`Unsupported`](crate::Status::Unsupported).
///
/// # Examples
///
/// ```
/// use gannet::{estimate, BuildParams, ElementType, IndexParams};
///
/// let shape = IndexParams::new(128);
/// let plan = estimate(&shape, 1_000_000, ElementType::F32, &BuildParams::new())?;
/// assert!(plan.peak_bytes >= plan.index_bytes);
/// # Ok::<(), gannet::Error>(())
/// ```
pub fn estimate(
    shape: &IndexParams,
    rows: usize,
    element: ElementType,
    params: &BuildParams<'_>,
) -> Result<Plan> {
    let (rows, params, element) = (rows as u64, params.raw_for(rows)?, element.raw());
    let mut raw = sys::ann_plan::default();
    // SAFETY: everything lives through the call.
    check(|error| unsafe {
        sys::ann_estimate(&shape.raw, rows, element, &params, &mut raw, error)
    })?;
    Ok(Plan {
        threads: raw.threads,
        index_bytes: raw.index_bytes,
        peak_bytes: raw.peak_bytes,
        seconds: raw.seconds,
        device_bytes: raw.device_bytes,
    })
}
