package gannet

// #include "bridge.h"
import "C"

import (
	"fmt"
	"time"
)

// Limits of the library. Exceeding one gives [ErrLimit].
const (
	DimMax    = C.ANN_DIM_MAX    // columns of a row
	RowsMax   = C.ANN_ROWS_MAX   // rows of one index
	DegreeMax = C.ANN_DEGREE_MAX // edges of a row
	BeamMax   = C.ANN_BEAM_MAX   // length of a search's beam
)

// IDNone fills the places of results that do not exist; it is never the id of a row.
const IDNone uint64 = C.ANN_ID_NONE

// RowNone fills unused places of graphs.
const RowNone uint32 = 1<<32 - 1

// ElementType names the type of coordinates where it is not known at compile time.
type ElementType int32

// Element types.
const (
	ElementAuto ElementType = C.ANN_ELEMENT_AUTO // that of the rows given to Build
	ElementF32  ElementType = C.ANN_F32
	ElementF16  ElementType = C.ANN_F16
	ElementBF16 ElementType = C.ANN_BF16
	ElementI8   ElementType = C.ANN_I8
	ElementU8   ElementType = C.ANN_U8
)

// String is the short name, as "f16".
func (e ElementType) String() string {
	return nameOf("element", e, "auto", "f32", "f16", "bf16", "i8", "u8")
}

// nameOf is the name of a number that counts from 0, or what kind of number it is.
func nameOf[T ~int32](kind string, value T, names ...string) string {
	if value < 0 || int(value) >= len(names) {
		return fmt.Sprintf("%s %d", kind, int32(value))
	}
	return names[value]
}

// Metric says how far apart two vectors are. Smaller is nearer for all of them.
type Metric int32

// Metrics.
const (
	MetricAuto         Metric = C.ANN_METRIC_AUTO          // L2
	MetricL2           Metric = C.ANN_METRIC_L2            // sum (x - q)^2, the squared distance
	MetricInnerProduct Metric = C.ANN_METRIC_INNER_PRODUCT // - sum x q
	MetricCosine       Metric = C.ANN_METRIC_COSINE        // 1 - sum x q / (|x| |q|)
)

// String is the name, as "cosine".
func (m Metric) String() string {
	return nameOf("metric", m, "auto", "l2", "inner_product", "cosine")
}

// GraphKind is the graph that searches walk.
type GraphKind int32

// Graphs.
const (
	GraphAuto  GraphKind = C.ANN_GRAPH_AUTO
	GraphCAGRA GraphKind = C.ANN_GRAPH_CAGRA // CAGRA's graph as in its paper; also what a built index with GraphAuto says
	GraphNone  GraphKind = C.ANN_GRAPH_NONE  // rows only; exact search answers
	GraphGGNN  GraphKind = C.ANN_GRAPH_GGNN  // hierarchy of k-NN graphs with symmetric links
	GraphTSDG  GraphKind = C.ANN_GRAPH_TSDG  // k-NN graph diversified in two stages
	GraphGiven GraphKind = C.ANN_GRAPH_GIVEN // a finished search graph, best edges first, in BuildParams.KNNGraph with KNNGiven; an index calls it CAGRA
)

// String is the name, as "cagra".
func (g GraphKind) String() string {
	return nameOf("graph", g, "auto", "cagra", "none", "ggnn", "tsdg", "given")
}

// CodeKind is what walks compare.
type CodeKind int32

// Kinds of codes.
const (
	CodesNone      CodeKind = C.ANN_CODES_NONE      // no graph
	CodesRows      CodeKind = C.ANN_CODES_ROWS      // rows of u8 and i8 under squared L2, which are their own codes
	CodesBytes     CodeKind = C.ANN_CODES_BYTES     // a byte a column, one step for all rows
	CodesFloats    CodeKind = C.ANN_CODES_FLOATS    // floats, where bytes cannot distinguish near rows, or halves in place of them
	CodesScaled    CodeKind = C.ANN_CODES_SCALED    // by inner product: a byte a column, a scale for each row
	CodesProjected CodeKind = C.ANN_CODES_PROJECTED // fewer bytes than columns, on the CPU; devices compare the bytes that are projected
)

// String is the name, as "bytes".
func (c CodeKind) String() string {
	return nameOf("codes", c, "none", "rows", "bytes", "floats", "scaled", "projected")
}

// Diversify is how [GraphTSDG] diversifies.
type Diversify int32

// Ways of diversifying.
const (
	DiversifyAuto   Diversify = C.ANN_DIVERSIFY_AUTO
	DiversifyTSDG   Diversify = C.ANN_DIVERSIFY_TSDG   // in two stages, as its paper does it
	DiversifyGD     Diversify = C.ANN_DIVERSIFY_GD     // edges that a kept one occludes go
	DiversifyDPG    Diversify = C.ANN_DIVERSIFY_DPG    // the half of each list stays that the fewest others occlude
	DiversifySSG    Diversify = C.ANN_DIVERSIFY_SSG    // edges stay that stand at an angle
	DiversifyVamana Diversify = C.ANN_DIVERSIFY_VAMANA // RobustPrune of DiskANN
)

// String is the name, as "tsdg".
func (d Diversify) String() string {
	return nameOf("diversify", d, "auto", "tsdg", "gd", "dpg", "ssg", "vamana")
}

// Detours are the entries of each k-NN list that detours go by, of [GraphCAGRA] and [GraphAuto].
type Detours int32

// Entries that detours go by.
const (
	DetoursAuto  Detours = C.ANN_DETOURS_AUTO
	DetoursNear  Detours = C.ANN_DETOURS_NEAR  // the first Degree
	DetoursWhole Detours = C.ANN_DETOURS_WHOLE // all, as in the paper
)

// String is the name, as "whole".
func (d Detours) String() string { return nameOf("detours", d, "auto", "near", "whole") }

// Reorder is the order by which one of two edges is the shorter one when detours are counted.
type Reorder int32

// The values of Reorder.
const (
	ReorderAuto     Reorder = C.ANN_REORDER_AUTO
	ReorderRank     Reorder = C.ANN_REORDER_RANK     // their places in the lists of their rows
	ReorderDistance Reorder = C.ANN_REORDER_DISTANCE // their distances
)

// String is the name, as "rank".
func (r Reorder) String() string { return nameOf("reorder", r, "auto", "rank", "distance") }

// KNNMethod is the way to a k-NN graph.
type KNNMethod int32

// Ways to a k-NN graph.
const (
	KNNAuto      KNNMethod = C.ANN_KNN_AUTO
	KNNNNDescent KNNMethod = C.ANN_KNN_NN_DESCENT
	KNNExact     KNNMethod = C.ANN_KNN_EXACT // every pair
	KNNGiven     KNNMethod = C.ANN_KNN_GIVEN // BuildParams.KNNGraph holds it
	KNNCells     KNNMethod = C.ANN_KNN_CELLS // every row with the k-means cells around it
	KNNGGNN      KNNMethod = C.ANN_KNN_GGNN  // GGNN's build, for KNNGraph alone
)

// String is the name, as "nn_descent".
func (m KNNMethod) String() string {
	return nameOf("method", m, "auto", "nn_descent", "exact", "given", "cells", "ggnn")
}

// Switch is on, off, or left to the library.
type Switch int32

// Switch positions.
const (
	Auto Switch = C.ANN_SWITCH_AUTO
	On   Switch = C.ANN_ON
	Off  Switch = C.ANN_OFF
)

// String is "auto", "on" or "off".
func (s Switch) String() string { return nameOf("switch", s, "auto", "on", "off") }

// Procedure is the way a search walks.
type Procedure int32

// Procedures.
const (
	ProcedureAuto      Procedure = C.ANN_SEARCH_AUTO
	ProcedureBestFirst Procedure = C.ANN_SEARCH_BEST_FIRST
	ProcedureExact     Procedure = C.ANN_SEARCH_EXACT // compare with every row
	// CAGRA's: for batches, for few queries, and one of the two by the rule of its paper.
	ProcedureCagraSingleCTA Procedure = C.ANN_SEARCH_CAGRA_SINGLE_CTA
	ProcedureCagraMultiCTA  Procedure = C.ANN_SEARCH_CAGRA_MULTI_CTA
	ProcedureCagra          Procedure = C.ANN_SEARCH_CAGRA
	// The walk of ProcedureAuto on a CUDA device, by 1, 8 or 16 warps a query, as WarpsPerQuery says.
	ProcedureTwoLists Procedure = C.ANN_SEARCH_TWO_LISTS
	ProcedureGGNN     Procedure = C.ANN_SEARCH_GGNN

	ProcedureTSDG      Procedure = C.ANN_SEARCH_TSDG       // on the CPU; on a device one of the next two
	ProcedureTSDGSmall Procedure = C.ANN_SEARCH_TSDG_SMALL // for small batches
	ProcedureTSDGLarge Procedure = C.ANN_SEARCH_TSDG_LARGE // for large ones

	// On the CPU, a walk that ends by distance.
	ProcedureSlack Procedure = C.ANN_SEARCH_SLACK

	// Deprecated: ProcedureWarp is [ProcedureTwoLists].
	ProcedureWarp = ProcedureTwoLists
	// Deprecated: ProcedureBlock is [ProcedureTwoLists] with WarpsPerQuery 8.
	ProcedureBlock Procedure = C.ANN_SEARCH_BLOCK
	// Deprecated: ProcedureWideBlock is [ProcedureTwoLists] with WarpsPerQuery 16.
	ProcedureWideBlock Procedure = C.ANN_SEARCH_WIDE_BLOCK
)

// String is the name, as "best_first".
func (p Procedure) String() string {
	return nameOf("procedure", p, "auto", "best_first", "exact", "cagra", "cagra_single_cta",
		"cagra_multi_cta", "two_lists", "block", "wide_block", "ggnn", "tsdg",
		"tsdg_small", "tsdg_large", "slack")
}

// QueueTakes is what TSDG's search for large batches keeps to be expanded.
type QueueTakes int32

// The values of QueueTakes.
const (
	QueueAuto     QueueTakes = C.ANN_QUEUE_AUTO
	QueueCompared QueueTakes = C.ANN_QUEUE_COMPARED // every row compared that is within the bound
	QueueNearer   QueueTakes = C.ANN_QUEUE_NEARER   // rows that improve the answers
)

// String is the name, as "nearer".
func (q QueueTakes) String() string { return nameOf("queue_takes", q, "auto", "compared", "nearer") }

// SlackOf is what GGNN's slack adds to.
type SlackOf int32

// The values of SlackOf.
const (
	SlackAuto      SlackOf = C.ANN_SLACK_AUTO
	SlackDistances SlackOf = C.ANN_SLACK_DISTANCES // distances, as the paper's text has it
	SlackSquares   SlackOf = C.ANN_SLACK_SQUARES   // their squares, as its authors' code has it
)

// String is the name, as "squares".
func (s SlackOf) String() string { return nameOf("slack", s, "auto", "distances", "squares") }

// Compare is what CAGRA's procedures compare queries with on their way.
type Compare int32

// Things to compare with.
const (
	CompareAuto   Compare = C.ANN_COMPARE_AUTO
	CompareCodes  Compare = C.ANN_COMPARE_CODES  // one byte a column as a rule
	CompareStored Compare = C.ANN_COMPARE_STORED // rows as stored
)

// String is the name, as "codes".
func (c Compare) String() string { return nameOf("compare", c, "auto", "codes", "stored") }

// Device is the place where a call runs. [DeviceCUDA] names the others.
type Device int32

// Devices.
const (
	DeviceAuto Device = C.ANN_DEVICE_AUTO
	DeviceCPU  Device = C.ANN_DEVICE_CPU
)

// String is "auto", "cpu", or the number of a CUDA device as "cuda:0".
func (d Device) String() string {
	if d >= DeviceCUDA(0) {
		return fmt.Sprintf("cuda:%d", int32(d-DeviceCUDA(0)))
	}
	return nameOf("device", d, "auto", "cpu")
}

// DeviceCUDA is CUDA device i, counted from 0.
func DeviceCUDA(i int) Device { return C.ANN_DEVICE_CUDA + Device(i) }

// IndexParams is the shape of an index, fixed for its life.
type IndexParams struct {
	Dim     int         // columns; no default
	Metric  Metric      // default: L2
	Element ElementType // as stored; default: that of the rows. Floats may be stored as another float.
}

// BuildParams steers [Index.Build]. In every field zero means "choose for me"; ann.h has the ranges
// and the defaults.
type BuildParams struct {
	Graph       GraphKind
	KNN         KNNMethod
	Device      Device
	Degree      int     // edges per row: more give higher recall at a beam, and slower steps
	KNNDegree   int     // neighbours per row of the k-NN graph under it
	Samples     int     // of NN-Descent, per row and round
	Iterations  int     // of NN-Descent at most
	Convergence float32 // NN-Descent ends when a round improves a smaller share than this
	Seed        uint64  // equal input and seed give an equal index
	Threads     int
	Repair      Switch // give unreachable rows an edge
	Calibrate   Switch // learn which beam gives which recall
	MemoryLimit uint64 // in bytes; a build that would need more answers ErrLimit at once

	// For GraphTSDG; ann.h has the ranges and the defaults.
	Diversify      Diversify
	Alpha          float32 // how much longer than both edges that lead past it an edge has to be to go
	OcclusionBound int     // edges with occlusion factors below this stay
	ReverseMax     int     // reverse edges of a row at most
	Pool           int     // of SSG: candidates of a row
	Angle          float32 // of SSG: degrees between edges

	KNNGraph    []uint32 // for KNNGiven: [rows, KNNDegree] row numbers, nearest first
	Calibration Matrix   // queries like those to come, to calibrate on

	// For GraphGGNN.
	SegmentRows  int     // rows compared with each other at first, and rows of the top layer
	Layers       int     // of the hierarchy
	Refinements  int     // passes over the merged layers; -1: none
	BuildStretch float32 // 1 + tau, 1 to 3: how far queries of the build go
	Midpoint     Switch  // inverse links by the sphere around the midpoint
	BuildSlack   SlackOf // what the slack of its queries adds to

	// For GraphAuto and GraphCAGRA.
	Detours Detours // which entries of the k-NN lists detours go by
	Reorder Reorder // the order by which one of two edges is the shorter one there

	// Progress is called now and then while the build runs, one call at a time, from a goroutine of
	// its own; never after Build has returned. Build waits for a call that is running, so that
	// [Index.Close] fails with [ErrBusy] when Progress calls it.
	Progress func(Progress)
}

// SearchParams steers searches. In every field zero means "choose for me".
type SearchParams struct {
	Procedure Procedure
	Device    Device
	Threads   int     // one query runs on one thread, what it is the first to measure on all
	Recall    float32 // wanted share of true neighbours found, mean over queries, in (0, 1]
	Beam      int     // rows kept while walking; overrides Recall

	// For CAGRA's procedures; ann.h has the ranges and the defaults.
	SearchWidth    int     // rows expanded in each iteration
	IterationsMax  int     // iterations at most
	HashBits       int     // log2 of the places of the forgettable table
	HashReset      int     // iterations between two that empty that table; -1: never
	TeamSize       int     // threads that compare a row
	CTAsPerQuery   int     // blocks that answer a query together
	BatchThreshold int     // batches of fewer queries are answered by several blocks a query
	BeamThreshold  int     // longer beams likewise
	Compare        Compare // the form of rows that queries are compared with

	// For GGNN's search, which also reads Beam, IterationsMax, TeamSize and Compare.
	Stretch      float32 // 1 + tau, 1 to 3: how far beyond the best rows are expanded; overrides Recall
	Queue        int     // rows that wait to be expanded
	Visited      int     // rows expanded that are remembered
	NearestShare float32 // the share of rows whose nearest neighbours bound the slack
	Slack        SlackOf // what the slack adds to
	Descent      Switch  // walks come down through the layers of its graph

	// For two lists.
	WarpsPerQuery int // warps of a CUDA device that walk for a query: 1, 8 or 16

	// For TSDG's searches.
	OcclusionMax int        // graphs with occlusion factors: edges with smaller ones are read; of BEST_FIRST too
	Walks        int        // of small batches: walks of a query
	HopsMax      int        // rows that a walk expands at most
	Segments     int        // of large batches: segments of its queue
	Delta        float32    // of large batches and of slack: how far beyond the last answer rows are expanded, as a factor
	QueueTakes   QueueTakes // of large batches: which rows wait to be expanded
}

// KNNParams steers [KNNGraph]. In every field but K zero means "choose for me".
type KNNParams struct {
	K           int // neighbours per row; no default
	Metric      Metric
	Method      KNNMethod
	Samples     int
	Iterations  int
	Convergence float32
	Threads     int
	Seed        uint64
	Device      Device // the lists are the same from every device

	// Progress is called as [BuildParams] says.
	Progress func(Progress)
}

// OpenMode says how much of a file is checked, and when.
type OpenMode int32

// Modes of opening.
const (
	OpenAuto OpenMode = C.ANN_OPEN_AUTO
	OpenFull OpenMode = C.ANN_OPEN_FULL // all is read into memory and checked before the call returns

	// OpenLazy maps the file, which opens in milliseconds, and checks each megabyte when it is first
	// read. A search that meets damage fails with [ErrCorrupt]. Nobody may cut the file or write to
	// it while the index lives: the system then ends the process. Saving over it is fine, as a save
	// makes a new file.
	OpenLazy OpenMode = C.ANN_OPEN_LAZY

	// OpenTrusted maps the file and checks nothing but how it is laid out. With a damaged or hostile
	// file behaviour is undefined.
	OpenTrusted OpenMode = C.ANN_OPEN_TRUSTED
)

// String is the name, as "lazy".
func (m OpenMode) String() string { return nameOf("mode", m, "auto", "full", "lazy", "trusted") }

// SaveParams steers [Index.Save]. In every field zero means "choose for me".
type SaveParams struct {
	Threads int    // that compute sums
	Sync    Switch // wait until the disk has the file, so that it survives a power failure

	// Progress is called as [BuildParams] says.
	Progress func(Progress)
}

// OpenParams steers [Open] and its like. In every field zero means "choose for me".
type OpenParams struct {
	Mode    OpenMode
	Threads int // that read and check

	// Required properties of the file, else it is refused with [ErrInvalidArgument].
	ExpectDim     int
	ExpectMetric  Metric
	ExpectElement ElementType

	// Progress is called as [BuildParams] says.
	Progress func(Progress)
}

// Progress says what a long call is doing.
type Progress struct {
	Step     int     // place of the phase in the call, from 1
	Fraction float64 // of the whole call, 0 to 1; never falls
	Phase    string  // "copy", "k-NN graph", ...
}

func (p *BuildParams) native(n *numbers) C.ann_build_params {
	return C.ann_build_params{
		graph:        C.int32_t(p.Graph),
		knn:          C.int32_t(p.KNN),
		device:       C.int32_t(p.Device),
		degree:       n.u32("degree", p.Degree),
		knn_degree:   n.u32("knn_degree", p.KNNDegree),
		samples:      n.u32("samples", p.Samples),
		iterations:   n.u32("iterations", p.Iterations),
		convergence:  C.float(p.Convergence),
		seed:         C.uint64_t(p.Seed),
		threads:      n.u32("threads", p.Threads),
		repair:       C.int32_t(p.Repair),
		calibrate:    C.int32_t(p.Calibrate),
		memory_limit: C.uint64_t(p.MemoryLimit),

		diversify:       C.int32_t(p.Diversify),
		alpha:           C.float(p.Alpha),
		occlusion_bound: n.u32("occlusion_bound", p.OcclusionBound),
		reverse_max:     n.u32("reverse_max", p.ReverseMax),
		pool:            n.u32("pool", p.Pool),
		angle:           C.float(p.Angle),

		segment_rows:  n.u32("segment_rows", p.SegmentRows),
		layers:        n.u32("layers", p.Layers),
		refinements:   n.i32("refinements", p.Refinements),
		build_stretch: C.float(p.BuildStretch),
		midpoint:      C.int32_t(p.Midpoint),
		build_slack:   C.int32_t(p.BuildSlack),

		detours: C.int32_t(p.Detours),
		reorder: C.int32_t(p.Reorder),
	}
}

func (p *SearchParams) native(n *numbers) C.ann_search_params {
	return C.ann_search_params{
		procedure: C.int32_t(p.Procedure),
		device:    C.int32_t(p.Device),
		threads:   n.u32("threads", p.Threads),
		recall:    C.float(p.Recall),
		beam:      n.u32("beam", p.Beam),

		search_width:    n.u32("search_width", p.SearchWidth),
		iterations_max:  n.u32("iterations_max", p.IterationsMax),
		hash_bits:       n.u32("hash_bits", p.HashBits),
		hash_reset:      n.i32("hash_reset", p.HashReset),
		team_size:       n.u32("team_size", p.TeamSize),
		ctas_per_query:  n.u32("ctas_per_query", p.CTAsPerQuery),
		batch_threshold: n.u32("batch_threshold", p.BatchThreshold),
		beam_threshold:  n.u32("beam_threshold", p.BeamThreshold),
		compare:         C.int32_t(p.Compare),

		stretch:       C.float(p.Stretch),
		queue:         n.u32("queue", p.Queue),
		visited:       n.u32("visited", p.Visited),
		nearest_share: C.float(p.NearestShare),
		slack:         C.int32_t(p.Slack),
		descent:       C.int32_t(p.Descent),

		warps_per_query: n.u32("warps_per_query", p.WarpsPerQuery),

		occlusion_max: n.u32("occlusion_max", p.OcclusionMax),
		walks:         n.u32("walks", p.Walks),
		hops_max:      n.u32("hops_max", p.HopsMax),
		segments:      n.u32("segments", p.Segments),
		delta:         C.float(p.Delta),
		queue_takes:   C.int32_t(p.QueueTakes),
	}
}

func (p *KNNParams) native(n *numbers) C.ann_knn_params {
	return C.ann_knn_params{
		metric:      C.int32_t(p.Metric),
		method:      C.int32_t(p.Method),
		k:           n.u32("k", p.K),
		samples:     n.u32("samples", p.Samples),
		iterations:  n.u32("iterations", p.Iterations),
		convergence: C.float(p.Convergence),
		threads:     n.u32("threads", p.Threads),
		seed:        C.uint64_t(p.Seed),
		device:      C.int32_t(p.Device),
	}
}

func (p *SaveParams) native(n *numbers) C.ann_save_params {
	return C.ann_save_params{
		threads: n.u32("threads", p.Threads),
		sync:    C.int32_t(p.Sync),
	}
}

func (p *OpenParams) native(n *numbers) C.ann_open_params {
	return C.ann_open_params{
		mode:           C.int32_t(p.Mode),
		threads:        n.u32("threads", p.Threads),
		expect_dim:     n.u32("expect_dim", p.ExpectDim),
		expect_metric:  C.int32_t(p.ExpectMetric),
		expect_element: C.int32_t(p.ExpectElement),
	}
}

func seconds(s C.double) time.Duration {
	return time.Duration(float64(s) * float64(time.Second))
}
