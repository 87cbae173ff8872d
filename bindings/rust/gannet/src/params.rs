//! The settings of indexes, builds and searches. The library chooses those that are not set.

use crate::cuda::DeviceMatrix;
use crate::device::Device;
use crate::element::{Element, ElementType};
use crate::error::Result;
use crate::matrix::{check_len, AnyMatrix, Matrix};
use crate::monitor::Monitor;
use crate::sys;

c_enum! {
    /// How far apart two vectors are. Smaller is nearer for all of them.
    pub enum Metric {
        /// `sum (x - q)^2`, the squared Euclidean distance.
        L2 = ANN_METRIC_L2 as "l2",
        /// `- sum x q`, so that the largest product comes first.
        InnerProduct = ANN_METRIC_INNER_PRODUCT as "inner_product",
        /// `1 - sum x q / (|x| |q|)`. A zero vector is at distance 1 from everything.
        Cosine = ANN_METRIC_COSINE as "cosine",
    }
}

c_enum! {
    /// The graph that searches walk.
    pub enum GraphKind {
        /// CAGRA's graph as in its paper. An index says so of the default graph too, which is a variation on it.
        Cagra = ANN_GRAPH_CAGRA as "cagra",
        /// Rows only; exact search answers.
        None = ANN_GRAPH_NONE as "none",
        /// Hierarchy of k-NN graphs with symmetric links.
        Ggnn = ANN_GRAPH_GGNN as "ggnn",
        /// k-NN graph diversified in two stages, with occlusion factors.
        Tsdg = ANN_GRAPH_TSDG as "tsdg",
        /// A finished search graph, which [`BuildParams::knn_graph`] takes in the place of neighbours: edges, best
        /// first, as [`Index::graph`](crate::Index::graph) gives them. An index calls it [`Cagra`](Self::Cagra).
        Given = ANN_GRAPH_GIVEN as "given",
    }
}

c_enum! {
    /// The form of rows that walks compare.
    pub enum CodeKind {
        /// Rows of u8 and i8 under squared L2, which are their own codes.
        Rows = ANN_CODES_ROWS as "rows",
        /// A byte a column, one step for all rows.
        Bytes = ANN_CODES_BYTES as "bytes",
        /// Floats, where bytes cannot distinguish near rows; on the CPU rows of f16 by squared L2, of 64 columns and
        /// more, as they are stored, or halves of the floats that order the rows as well.
        Floats = ANN_CODES_FLOATS as "floats",
        /// By inner product: a byte a column, a scale for each row about the nearest of some centres.
        Scaled = ANN_CODES_SCALED as "scaled",
        /// By squared L2 and cosine, fewer bytes than columns: walks of the CPU compare a projection of a row's bytes,
        /// devices the bytes.
        Projected = ANN_CODES_PROJECTED as "projected",
    }
}

c_enum! {
    /// The entries of each k-NN list that detours go by, of CAGRA's graph and the default one.
    pub enum Detours {
        /// The first `degree`.
        Near = ANN_DETOURS_NEAR as "near",
        /// All, as in the paper.
        Whole = ANN_DETOURS_WHOLE as "whole",
    }
}

c_enum! {
    /// The order by which one of two edges is the shorter one when detours are counted.
    pub enum Reorder {
        /// Their places in the lists of their rows.
        Rank = ANN_REORDER_RANK as "rank",
        /// Their distances.
        Distance = ANN_REORDER_DISTANCE as "distance",
    }
}

c_enum! {
    /// How [`GraphKind::Tsdg`] diversifies.
    pub enum Diversify {
        /// In two stages, as its paper does it.
        Tsdg = ANN_DIVERSIFY_TSDG as "tsdg",
        /// Edges that a kept one occludes go.
        Gd = ANN_DIVERSIFY_GD as "gd",
        /// The half of each list stays that the fewest others occlude.
        Dpg = ANN_DIVERSIFY_DPG as "dpg",
        /// Edges stay that stand at an angle.
        Ssg = ANN_DIVERSIFY_SSG as "ssg",
        /// RobustPrune of DiskANN.
        Vamana = ANN_DIVERSIFY_VAMANA as "vamana",
    }
}

c_enum! {
    /// How a k-NN graph is found. One that exists already is given by [`BuildParams::knn_graph`].
    pub enum KnnMethod {
        /// NN-Descent as GNND does it; approximate.
        NnDescent = ANN_KNN_NN_DESCENT as "nn_descent",
        /// Every pair: n^2 distances.
        Exact = ANN_KNN_EXACT as "exact",
        /// Every row is compared with the k-means cells around it; approximate, the default above
        /// 4,096 rows.
        Cells = ANN_KNN_CELLS as "cells",
        /// GGNN's build; approximate, for k-NN graphs alone.
        Ggnn = ANN_KNN_GGNN as "ggnn",
    }
}

c_enum! {
    /// The quantity that GGNN's slack is added to.
    pub enum SlackOf {
        /// Distances, as the paper's text has it.
        Distances = ANN_SLACK_DISTANCES as "distances",
        /// Squares of distances, as its authors' code has it.
        Squares = ANN_SLACK_SQUARES as "squares",
    }
}

c_enum! {
    /// The rows that TSDG's search for large batches keeps to be expanded.
    pub enum QueueTakes {
        /// Every row compared that is within the bound.
        Compared = ANN_QUEUE_COMPARED as "compared",
        /// Rows that improve the answers.
        Nearer = ANN_QUEUE_NEARER as "nearer",
    }
}

c_enum! {
    /// How a search walks.
    pub enum Procedure {
        /// Expand the nearest unexpanded row of the beam until none is left.
        BestFirst = ANN_SEARCH_BEST_FIRST as "best_first",
        /// Compare with every row.
        Exact = ANN_SEARCH_EXACT as "exact",
        /// One of CAGRA's two procedures, by the rule of its paper.
        Cagra = ANN_SEARCH_CAGRA as "cagra",
        /// CAGRA's search for batches.
        CagraSingleCta = ANN_SEARCH_CAGRA_SINGLE_CTA as "cagra_single_cta",
        /// CAGRA's search for few queries.
        CagraMultiCta = ANN_SEARCH_CAGRA_MULTI_CTA as "cagra_multi_cta",
        /// The default's walk on a CUDA device: two lists, by as many warps as
        /// [`SearchParams::warps_per_query`] says.
        TwoLists = ANN_SEARCH_TWO_LISTS as "two_lists",
        /// Two lists by 1 warp if [`SearchParams::warps_per_query`] says no other number.
        #[deprecated = "it is `TwoLists`"]
        Warp = ANN_SEARCH_WARP as "warp",
        /// Two lists by 8 warps.
        #[deprecated = "`TwoLists` with `warps_per_query(8)`"]
        Block = ANN_SEARCH_BLOCK as "block",
        /// Two lists by 16 warps.
        #[deprecated = "`TwoLists` with `warps_per_query(16)`"]
        WideBlock = ANN_SEARCH_WIDE_BLOCK as "wide_block",
        /// GGNN's search, with a slack added to the distance of the k-th best row.
        Ggnn = ANN_SEARCH_GGNN as "ggnn",
        /// TSDG's search on the CPU; on a device one of the next two, by the batch.
        Tsdg = ANN_SEARCH_TSDG as "tsdg",
        /// TSDG's search for small batches.
        TsdgSmall = ANN_SEARCH_TSDG_SMALL as "tsdg_small",
        /// TSDG's search for large batches.
        TsdgLarge = ANN_SEARCH_TSDG_LARGE as "tsdg_large",
        /// On the CPU, a walk that ends by distance.
        Slack = ANN_SEARCH_SLACK as "slack",
    }
}

c_enum! {
    /// The form of rows with which CAGRA's procedures compare queries on their way.
    pub enum Compare {
        /// One byte a column as a rule.
        Codes = ANN_COMPARE_CODES as "codes",
        /// Rows as stored.
        Stored = ANN_COMPARE_STORED as "stored",
    }
}

/// The shape of an index, fixed for its life.
///
/// ```
/// use gannet::{ElementType, IndexParams, Metric};
///
/// let shape = IndexParams::new(96).metric(Metric::Cosine).element(ElementType::F16);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct IndexParams {
    pub(crate) raw: sys::ann_index_params,
}

impl IndexParams {
    /// An index over rows of `dim` columns.
    pub fn new(dim: usize) -> Self {
        // A dim of more than 32 bits stays above the library's limit, which refuses it.
        let dim = u32::try_from(dim).unwrap_or(u32::MAX);
        IndexParams { raw: sys::ann_index_params { dim, ..Default::default() } }
    }

    setters! {
        /// How distances are measured.
        metric: Metric;
        /// The element that rows are stored as. Float rows may be stored as another float type;
        /// `i8` and `u8` as themselves or as a float type that holds every value.
        element: ElementType;
    }
}

/// Settings of a build.
///
/// ```
/// use gannet::BuildParams;
///
/// let params = BuildParams::new().degree(48).seed(7).memory_limit(1 << 30);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct BuildParams<'a> {
    raw: sys::ann_build_params,
    knn_graph: Option<&'a [u32]>,
    calibration: Option<AnyMatrix<'a>>,
    pub(crate) monitor: Option<&'a Monitor>,
}

// SAFETY: the pointers in `raw` stay null; copies made for a call get theirs. The rest are shared
// references to what is Sync.
unsafe impl Send for BuildParams<'_> {}
unsafe impl Sync for BuildParams<'_> {}

impl Default for BuildParams<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> BuildParams<'a> {
    /// Everything as the library chooses.
    pub fn new() -> Self {
        BuildParams { raw: Default::default(), knn_graph: None, calibration: None, monitor: None }
    }

    setters! {
        /// The graph that searches walk.
        graph: GraphKind;
        /// How the k-NN graph under it is found.
        knn: KnnMethod;
        /// Where the build runs.
        device: Device;
        /// Edges per row of the search graph. More: higher recall at a beam, slower steps, more
        /// memory.
        degree: u32;
        /// Neighbours per row of the k-NN graph. More: better graph, longer build.
        knn_degree: u32;
        /// New and old neighbours of a row that meet in one round of NN-Descent.
        samples: u32;
        /// Rounds of NN-Descent at most.
        iterations: u32;
        /// NN-Descent ends when a round improves fewer than this share of all list entries.
        convergence: f32;
        /// Seed of every random choice. Equal input and seed give an equal index.
        seed: u64;
        /// Threads to use.
        threads: u32;
        /// Whether unreachable rows are given an edge.
        repair: bool;
        /// Whether the build learns which beam gives which recall.
        calibrate: bool;
        /// Bytes that the build may hold at once, borrowed rows not counted. It fails with
        /// [`Status::Limit`](crate::Status::Limit) before it starts if it would need more.
        memory_limit: u64;
        /// TSDG: how edges are diversified.
        diversify: Diversify;
        /// TSDG: how much longer than both edges that lead past it an edge has to be to go.
        alpha: f32;
        /// TSDG: edges with occlusion factors below this stay.
        occlusion_bound: u32;
        /// TSDG: reverse edges of a row at most.
        reverse_max: u32;
        /// TSDG by SSG: candidates of a row.
        pool: u32;
        /// TSDG by SSG: degrees between edges.
        angle: f32;
        /// GGNN: rows compared with each other at first, and rows of the top layer.
        segment_rows: u32;
        /// GGNN: layers of the hierarchy.
        layers: u32;
        /// GGNN: passes over the merged layers; -1: none.
        refinements: i32;
        /// GGNN: 1 + tau, 1 to 3: how far queries of the build go.
        build_stretch: f32;
        /// GGNN: whether inverse links go by the sphere around the midpoint.
        midpoint: bool;
        /// GGNN: what the slack of the build's queries adds to.
        build_slack: SlackOf;
        /// CAGRA and the default graph: which entries of the k-NN lists detours go by.
        detours: Detours;
        /// CAGRA and the default graph: the order by which one of two edges is the shorter one.
        reorder: Reorder;
    }

    /// Takes a k-NN graph that exists already: `[rows, knn_degree]` row numbers, nearest first,
    /// [`ROW_NONE`](crate::ROW_NONE) in unused places at the end of a row.
    ///
    /// ```
    /// use gannet::{knn_graph, BuildParams, Index, IndexParams, KnnParams, Matrix};
    ///
    /// let data: Vec<f32> = (0..200).map(|i| i as f32).collect();
    /// let rows = Matrix::new(&data, 1)?;
    /// let graph = knn_graph(rows, &KnnParams::new(8))?;
    /// let index = Index::new(&IndexParams::new(1))?;
    /// index.build(rows, &BuildParams::new().knn_graph(graph.neighbors(), 8).degree(4))?;
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn knn_graph(mut self, neighbors: &'a [u32], knn_degree: u32) -> Self {
        self.raw.knn = sys::ANN_KNN_GIVEN as i32;
        self.raw.knn_degree = knn_degree;
        self.knn_graph = Some(neighbors);
        self
    }

    /// Queries like those to come, to calibrate on. Without them a sample of the rows plays the
    /// queries.
    ///
    /// ```
    /// use gannet::{BuildParams, Matrix};
    ///
    /// let sample = [0.5f32, 0.25, 0.75, 0.5];
    /// let params = BuildParams::new().calibration(Matrix::new(&sample, 2)?);
    /// # Ok::<(), gannet::Error>(())
    /// ```
    pub fn calibration<T: Element>(mut self, queries: Matrix<'a, T>) -> Self {
        self.calibration = Some(queries.into());
        self
    }

    /// As [`calibration`](Self::calibration), with queries in memory of a CUDA device.
    pub fn calibration_on_device<T: Element>(mut self, queries: DeviceMatrix<'a, T>) -> Self {
        self.calibration = Some(queries.into());
        self
    }

    /// Lets other threads watch and cancel the build.
    pub fn monitor(mut self, monitor: &'a Monitor) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// The struct for one call over `rows` rows. Its pointers are good while `self` is borrowed.
    pub(crate) fn raw_for(&self, rows: usize) -> Result<sys::ann_build_params> {
        let mut raw = self.raw;
        if let Some(graph) = self.knn_graph {
            // The library cannot see how long the slice is.
            check_len("knn_graph", graph.len(), rows, raw.knn_degree as usize)?;
            raw.knn_graph = graph.as_ptr();
        }
        if let Some(queries) = &self.calibration {
            raw.calibration = &queries.raw;
        }
        Ok(raw)
    }
}

/// Settings of a search.
///
/// ```
/// use gannet::SearchParams;
///
/// let fast = SearchParams::new().recall(0.8);
/// let sure = SearchParams::new().recall(0.99).threads(4);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct SearchParams<'a> {
    pub(crate) raw: sys::ann_search_params,
    pub(crate) monitor: Option<&'a Monitor>,
}

// SAFETY: the stream in `raw` stays null. The rest are shared references to what is Sync.
unsafe impl Send for SearchParams<'_> {}
unsafe impl Sync for SearchParams<'_> {}

impl<'a> SearchParams<'a> {
    /// Everything as the library chooses.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// How the search walks.
        procedure: Procedure;
        /// Where it runs.
        device: Device;
        /// Threads to use. One query runs on the calling thread; they measure curves that it is the first to need, and
        /// copy the index to a device.
        threads: u32;
        /// Wanted share of true neighbours found, mean over queries, in (0, 1].
        recall: f32;
        /// Rows kept while walking; overrides the recall. More: higher recall, longer time.
        beam: u32;
        /// CAGRA: rows expanded in each iteration.
        search_width: u32;
        /// CAGRA: iterations at most.
        iterations_max: u32;
        /// CAGRA: log2 of the places of the forgettable table.
        hash_bits: u32;
        /// CAGRA: iterations between two that empty that table; -1: never.
        hash_reset: i32;
        /// CAGRA: threads that compare a row.
        team_size: u32;
        /// CAGRA: blocks that answer a query together.
        ctas_per_query: u32;
        /// CAGRA: batches of fewer queries are answered by several blocks a query.
        batch_threshold: u32;
        /// CAGRA: longer beams likewise.
        beam_threshold: u32;
        /// CAGRA: the form of rows that queries are compared with.
        compare: Compare;
        /// GGNN: 1 + tau, 1 to 3: how far beyond the best rows are expanded; overrides the recall.
        stretch: f32;
        /// GGNN: rows that wait to be expanded.
        queue: u32;
        /// GGNN: rows expanded that are remembered.
        visited: u32;
        /// GGNN: the share of rows whose nearest neighbours bound the slack.
        nearest_share: f32;
        /// Graphs with occlusion factors: edges with smaller ones are read.
        occlusion_max: u32;
        /// TSDG, small batches: walks of a query.
        walks: u32;
        /// TSDG: rows that a walk expands at most.
        hops_max: u32;
        /// TSDG, large batches: segments of its queue.
        segments: u32;
        /// TSDG, large batches, and slack: how far beyond the last answer rows are expanded, as a factor.
        delta: f32;
        /// TSDG, large batches: which rows wait to be expanded.
        queue_takes: QueueTakes;
        /// GGNN: what the slack adds to.
        slack: SlackOf;
        /// GGNN: whether walks come down through the layers of its graph.
        descent: bool;
        /// Two lists: warps of a CUDA device that walk for a query: 1, 8 or 16.
        warps_per_query: u32;
    }

    /// Lets other threads watch and cancel the search.
    pub fn monitor(mut self, monitor: &'a Monitor) -> Self {
        self.monitor = Some(monitor);
        self
    }
}
