//! Section 4 of the header: results of searches.

use std::iter::FusedIterator;
use std::ops::Range;
use std::ptr::null_mut;
use std::slice;

use crate::error::{Result, Status};
use crate::matrix::{as_u32, check_len, zeros};
use crate::sys;

/// Whether one query of a batch was answered.
///
/// ```
/// use gannet::QueryStatus;
///
/// assert_eq!(QueryStatus::default().result(), Ok(()));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct QueryStatus(sys::ann_status);

impl QueryStatus {
    /// `Ok`, or [`Status::NotFinite`] for a query with NaN or infinity, which has no neighbours
    /// and disturbs no other.
    ///
    /// # Errors
    ///
    /// [`NotFinite`](crate::Status::NotFinite).
    pub fn result(self) -> std::result::Result<(), Status> {
        match self.0 {
            code if code == sys::ANN_OK as i32 => Ok(()),
            code => Err(Status::from_code(code)),
        }
    }
}

/// The work of a search and its promise. The counts are for all its queries together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SearchStats {
    /// Distances that were computed.
    pub distance_count: u64,
    /// Rows whose edges were read.
    pub expansion_count: u64,
    /// The procedure that answered: [`Exact`](crate::Procedure::Exact) where every row was compared,
    /// whatever was asked for.
    pub procedure: Option<crate::Procedure>,
    /// 1, 8 or 16, the warps that walked for a query, where
    /// [`TwoLists`](crate::Procedure::TwoLists) answered; else 0.
    pub warps_per_query: u32,
    /// The recall that calibration promises of the search, for queries like those that it was
    /// calibrated on; 1 where every row was compared, 0 where nothing has been measured.
    pub recall: f32,
}

impl SearchStats {
    pub(crate) fn of(raw: &sys::ann_results) -> Self {
        SearchStats {
            distance_count: raw.distance_count,
            expansion_count: raw.expansion_count,
            procedure: crate::Procedure::from_raw(raw.procedure),
            warps_per_query: raw.warps_per_query,
            recall: raw.recall,
        }
    }
}

/// One neighbour of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Neighbor {
    /// The row's id.
    pub id: u64,
    /// Its distance from the query.
    pub distance: f32,
}

/// The neighbours of one query, nearest first, equal distances by ascending id.
#[derive(Debug, Clone, Copy)]
pub struct Neighbors<'a> {
    ids: &'a [u64],
    distances: &'a [f32],
    status: QueryStatus,
}

impl<'a> Neighbors<'a> {
    /// Ids of those found: k, or fewer if there are no more.
    pub fn ids(&self) -> &'a [u64] {
        self.ids
    }

    /// Their distances.
    pub fn distances(&self) -> &'a [f32] {
        self.distances
    }

    /// Whether the query was answered.
    pub fn status(&self) -> QueryStatus {
        self.status
    }

    /// Ids and distances, in pairs.
    pub fn iter(&self) -> NeighborsIter<'a> {
        NeighborsIter { ids: self.ids.iter(), distances: self.distances.iter() }
    }
}

impl<'a> IntoIterator for Neighbors<'a> {
    type Item = Neighbor;
    type IntoIter = NeighborsIter<'a>;

    fn into_iter(self) -> NeighborsIter<'a> {
        self.iter()
    }
}

/// The neighbours of one query, one after the other.
#[derive(Debug, Clone)]
pub struct NeighborsIter<'a> {
    ids: slice::Iter<'a, u64>,
    distances: slice::Iter<'a, f32>,
}

impl Iterator for NeighborsIter<'_> {
    type Item = Neighbor;

    fn next(&mut self) -> Option<Neighbor> {
        Some(Neighbor { id: *self.ids.next()?, distance: *self.distances.next()? })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ids.size_hint()
    }
}

impl DoubleEndedIterator for NeighborsIter<'_> {
    fn next_back(&mut self) -> Option<Neighbor> {
        Some(Neighbor { id: *self.ids.next_back()?, distance: *self.distances.next_back()? })
    }
}

impl ExactSizeIterator for NeighborsIter<'_> {}
impl FusedIterator for NeighborsIter<'_> {}

/// Neighbours of all queries of a search, in memory of their own.
///
/// ```
/// use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams};
///
/// let index = Index::new(&IndexParams::new(1))?;
/// index.build(Matrix::new(&[0.0f32, 5.0, 6.0], 1)?, &BuildParams::new())?;
/// let found = index.search(Matrix::new(&[1.0f32, 9.0], 1)?, 2, &SearchParams::new())?;
/// for (query, neighbors) in found.iter().enumerate() {
///     for near in neighbors {
///         println!("query {query}: row {} at {}", near.id, near.distance);
///     }
/// }
/// assert_eq!(found.ids(), [0, 1, 2, 1]);
/// assert_eq!(found.distances(), [1.0, 16.0, 9.0, 16.0]);
/// # Ok::<(), gannet::Error>(())
/// ```
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Results {
    pub(crate) k: usize,
    pub(crate) ids: Vec<u64>,
    pub(crate) distances: Vec<f32>,
    pub(crate) counts: Vec<u32>,
    pub(crate) statuses: Vec<QueryStatus>,
    pub(crate) stats: SearchStats,
}

impl Results {
    pub(crate) fn zeros(rows: usize, k: usize) -> Result<Self> {
        Ok(Results {
            k,
            ids: zeros(rows, k)?,
            distances: zeros(rows, k)?,
            counts: zeros(rows, 1)?,
            statuses: zeros(rows, 1)?,
            stats: SearchStats::default(),
        })
    }

    pub(crate) fn as_mut(&mut self) -> ResultsMut<'_> {
        ResultsMut::new(self.k, &mut self.ids)
            .distances(&mut self.distances)
            .counts(&mut self.counts)
            .statuses(&mut self.statuses)
    }

    /// Number of queries.
    pub fn rows(&self) -> usize {
        self.counts.len()
    }

    /// Neighbours asked for.
    pub fn k(&self) -> usize {
        self.k
    }

    /// `[rows, k]` ids, [`ID_NONE`](crate::ID_NONE) behind the last neighbour of a query.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// `[rows, k]` distances, infinity behind the last neighbour of a query.
    pub fn distances(&self) -> &[f32] {
        &self.distances
    }

    /// `[rows]` neighbours found.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// `[rows]` whether each query was answered.
    pub fn statuses(&self) -> &[QueryStatus] {
        &self.statuses
    }

    /// The work that it took.
    pub fn stats(&self) -> SearchStats {
        self.stats
    }

    /// The neighbours of one query, if there is such a query.
    pub fn get(&self, query: usize) -> Option<Neighbors<'_>> {
        let count = (*self.counts.get(query)? as usize).min(self.k);
        let begin = query * self.k;
        Some(Neighbors {
            ids: self.ids.get(begin..begin + count)?,
            distances: self.distances.get(begin..begin + count)?,
            status: *self.statuses.get(query)?,
        })
    }

    /// The neighbours of each query.
    pub fn iter(&self) -> ResultsIter<'_> {
        ResultsIter { results: self, queries: 0..self.rows() }
    }

    /// The buffers themselves, to be kept or sent on without a copy.
    ///
    /// ```
    /// # use gannet::{BuildParams, Index, IndexParams, Matrix, SearchParams};
    /// # let index = Index::new(&IndexParams::new(1))?;
    /// # index.build(Matrix::new(&[0.0f32, 5.0, 6.0], 1)?, &BuildParams::new())?;
    /// let found = index.search(Matrix::one(&[4.0f32])?, 2, &SearchParams::new())?;
    /// let gannet::ResultParts { ids, distances, .. } = found.into_parts();
    /// assert_eq!((ids, distances), (vec![1, 2], vec![1.0, 4.0]));
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn into_parts(self) -> ResultParts {
        let Results { k, ids, distances, counts, statuses, stats } = self;
        ResultParts { k, ids, distances, counts, statuses, stats }
    }
}

impl<'a> IntoIterator for &'a Results {
    type Item = Neighbors<'a>;
    type IntoIter = ResultsIter<'a>;

    fn into_iter(self) -> ResultsIter<'a> {
        self.iter()
    }
}

/// The neighbours of each query of a search.
#[derive(Debug, Clone)]
pub struct ResultsIter<'a> {
    results: &'a Results,
    queries: Range<usize>,
}

impl<'a> Iterator for ResultsIter<'a> {
    type Item = Neighbors<'a>;

    fn next(&mut self) -> Option<Neighbors<'a>> {
        self.results.get(self.queries.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.queries.size_hint()
    }
}

impl<'a> DoubleEndedIterator for ResultsIter<'a> {
    fn next_back(&mut self) -> Option<Neighbors<'a>> {
        self.results.get(self.queries.next_back()?)
    }
}

impl ExactSizeIterator for ResultsIter<'_> {}
impl FusedIterator for ResultsIter<'_> {}

/// The parts of [`Results`]; see [`Results::into_parts`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ResultParts {
    /// Neighbours asked for.
    pub k: usize,
    /// `[rows, k]` ids, [`ID_NONE`](crate::ID_NONE) behind the last neighbour of a query.
    pub ids: Vec<u64>,
    /// `[rows, k]` distances, infinity behind the last neighbour of a query.
    pub distances: Vec<f32>,
    /// `[rows]` neighbours found.
    pub counts: Vec<u32>,
    /// `[rows]` whether each query was answered.
    pub statuses: Vec<QueryStatus>,
    /// The work that it took.
    pub stats: SearchStats,
}

/// Buffers of the caller for the neighbours of a batch. Those that are not set are not written.
///
/// ```
/// use gannet::{BuildParams, Index, IndexParams, Matrix, ResultsMut, SearchParams};
///
/// let index = Index::new(&IndexParams::new(1))?;
/// index.build(Matrix::new(&[0.0f32, 5.0, 6.0], 1)?, &BuildParams::new())?;
///
/// // Made once and used for many searches.
/// let (mut ids, mut distances) = ([0; 2], [0.0; 2]);
/// for query in [[4.0f32], [5.5], [8.0]] {
///     let mut found = ResultsMut::new(2, &mut ids).distances(&mut distances);
///     index.search_into(Matrix::one(&query)?, &mut found, &SearchParams::new())?;
/// }
/// assert_eq!((ids, distances), ([2, 1], [4.0, 9.0]));
/// # Ok::<(), gannet::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct ResultsMut<'a> {
    k: usize,
    ids: &'a mut [u64],
    distances: Option<&'a mut [f32]>,
    counts: Option<&'a mut [u32]>,
    statuses: Option<&'a mut [QueryStatus]>,
}

impl<'a> ResultsMut<'a> {
    /// Takes `k` ids for each query: `ids` is `[rows, k]`.
    pub fn new(k: usize, ids: &'a mut [u64]) -> Self {
        ResultsMut { k, ids, distances: None, counts: None, statuses: None }
    }

    /// Takes distances too, `[rows, k]`.
    pub fn distances(mut self, distances: &'a mut [f32]) -> Self {
        self.distances = Some(distances);
        self
    }

    /// Takes the number of neighbours found too, `[rows]`.
    pub fn counts(mut self, counts: &'a mut [u32]) -> Self {
        self.counts = Some(counts);
        self
    }

    /// Takes whether each query was answered too, `[rows]`.
    pub fn statuses(mut self, statuses: &'a mut [QueryStatus]) -> Self {
        self.statuses = Some(statuses);
        self
    }

    /// The struct for a call with `rows` queries. Its pointers are good while `self` is borrowed.
    pub(crate) fn raw(&mut self, rows: usize) -> Result<sys::ann_results> {
        check_len("ids", self.ids.len(), rows, self.k)?;
        Ok(sys::ann_results {
            k: as_u32(self.k, "k")?,
            rows: rows as u64,
            ids: self.ids.as_mut_ptr(),
            distances: optional("distances", &mut self.distances, rows, self.k)?,
            counts: optional("counts", &mut self.counts, rows, 1)?,
            // A transparent ann_status.
            status: optional("statuses", &mut self.statuses, rows, 1)?.cast(),
            ..Default::default()
        })
    }
}

/// The pointer of a buffer that may be left out, its length checked.
fn optional<T>(
    name: &str,
    buffer: &mut Option<&mut [T]>,
    rows: usize,
    columns: usize,
) -> Result<*mut T> {
    let Some(buffer) = buffer else { return Ok(null_mut()) };
    check_len(name, buffer.len(), rows, columns)?;
    Ok(buffer.as_mut_ptr())
}
