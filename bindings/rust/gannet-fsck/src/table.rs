//! Sections 3 and 4 of the specification: which sections there are, where, and how long.

use crate::header::{Graph, Header};
use crate::source::{u32_at, u64_at, zeros, Source};
use crate::{round_to_page, sum, Metric, Place, Problem, CHUNK, PAGE, TAIL};

const ENTRY: u64 = 64;
const MAY_BE_SKIPPED: u32 = 1;
pub(crate) const CURVE: u64 = 392;
const CURVES_MAX: u64 = 4;
const QUERIES_MAX: u64 = 2048;
pub(crate) const DEVICE_CURVE: u64 = 800;
const DEVICE_CURVES_MAX: u64 = 320;
const FIRST_CURVES_MAX: u64 = 64;
pub(crate) const SLACK_CURVE: u64 = 776;
const SLACK_CURVES_MAX: u64 = 4;
const COVERING_HEADS_MAX: u64 = 8192;
const CELLS_MAX: u64 = 256;

pub(crate) const ROWS: u32 = 1;
pub(crate) const IDS: u32 = 2;
pub(crate) const ORDER: u32 = 3;
pub(crate) const LENGTHS: u32 = 4;
pub(crate) const CENTRE: u32 = 5;
pub(crate) const CODES: u32 = 6;
pub(crate) const EDGES: u32 = 7;
pub(crate) const ENTRIES: u32 = 8;
pub(crate) const CALIBRATION: u32 = 9;
pub(crate) const QUERIES: u32 = 10;
pub(crate) const LAYERS: u32 = 11;
pub(crate) const NEAREST: u32 = 12;
pub(crate) const PREFIXES: u32 = 13;
const LEVELS_MAX: u64 = 64;
pub(crate) const SCALED_CODES: u32 = 15;
pub(crate) const SCALED_CENTRES: u32 = 16;
pub(crate) const DEVICE_CURVES: u32 = 17;
pub(crate) const SLACK_CURVES: u32 = 18;
pub(crate) const CODE_ORDER: u32 = 19;
pub(crate) const PROJECTED_CODES: u32 = 20;
pub(crate) const PROJECTION: u32 = 21;
pub(crate) const PROJECTED_ORDER: u32 = 22;
pub(crate) const FIRST_CURVES: u32 = 23;
pub(crate) const COVERING_HEADS: u32 = 24;
pub(crate) const COVERING_CURVES: u32 = 25;
pub(crate) const HALF_CODES: u32 = 26;
/// Bytes before the offsets of a projection.
pub(crate) const PROJECTION_HEAD: u64 = 64;

/// The name of a type that this reader knows.
pub(crate) fn name(kind: u32) -> Option<&'static str> {
    Some(match kind {
        ROWS => "rows",
        IDS => "ids",
        ORDER => "order",
        LENGTHS => "lengths",
        CENTRE => "centre",
        CODES => "codes",
        EDGES => "edges",
        ENTRIES => "entries",
        CALIBRATION => "calibration",
        QUERIES => "queries",
        LAYERS => "layers",
        NEAREST => "nearest",
        PREFIXES => "prefixes",
        SCALED_CODES => "scaled codes",
        SCALED_CENTRES => "scaled centres",
        DEVICE_CURVES => "device curves",
        SLACK_CURVES => "slack curves",
        CODE_ORDER => "code order",
        PROJECTED_CODES => "projected codes",
        PROJECTION => "projection",
        PROJECTED_ORDER => "projected order",
        FIRST_CURVES => "first curves",
        COVERING_HEADS => "covering heads",
        COVERING_CURVES => "covering curves",
        HALF_CODES => "half codes",
        _ => return None,
    })
}

/// A section whose place and length have been checked.
#[derive(Debug)]
pub(crate) struct Section {
    pub kind: u32,
    pub offset: u64,
    pub bytes: u64,
    /// Bytes of an item.
    pub item: u32,
    /// Where the next section, or the tail, begins.
    pub padded_end: u64,
    /// The stored sum of each chunk.
    pub sums: Vec<u64>,
}

impl Section {
    /// No chunk can stand in for another, since each has a seed of its own.
    pub fn seed(&self, chunk: u64) -> u64 {
        (u64::from(self.kind) << 48).wrapping_add(chunk)
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    /// The entries as stored.
    pub entries: Vec<u8>,
    pub sections: Vec<Section>,
    /// Where the tail begins.
    pub end: u64,
}

impl Table {
    /// The types of sections that this reader skips.
    pub fn unknown(&self) -> Vec<u32> {
        let kinds = self.sections.iter().map(|section| section.kind);
        kinds.filter(|&kind| name(kind).is_none()).collect()
    }
}

pub(crate) fn read(source: &mut impl Source, header: &Header) -> Result<Table, Problem> {
    let (bytes, chunks_begin) = read_summed(source, header)?;
    let (entries, sums) = bytes.split_at(chunks_begin);
    let mut table = Table { entries: entries.to_vec(), sections: Vec::new(), end: 0 };
    let mut sums = sums.chunks_exact(8).map(|sum| u64_at(sum, 0));
    let mut sum_at = PAGE + entries.len() as u64;
    table.end = PAGE + bytes.len() as u64;
    let find = |kind| entries.chunks_exact(ENTRY as usize).find(|entry| u32_at(entry, 0) == kind);
    let open = Open {
        has_queries: find(QUERIES).is_some(),
        has_scaled: find(SCALED_CODES).is_some(),
        has_devices: find(DEVICE_CURVES).is_some(),
        has_first: find(FIRST_CURVES).is_some(),
        has_slacks: find(SLACK_CURVES).is_some(),
        has_covering: find(COVERING_HEADS).is_some(),
        has_halves: find(HALF_CODES).is_some(),
        has_order: find(CODE_ORDER).is_some(),
        projected: find(PROJECTED_CODES).map(|entry| u64::from(u32_at(entry, 24))),
        has_projected_order: find(PROJECTED_ORDER).is_some(),
        edges: find(EDGES).map_or(0, |entry| u64_at(entry, 32)),
        levels: find(PREFIXES).map_or(0, |entry| u64::from(u32_at(entry, 24)) / 2),
    };
    if header.has_variable_rows() && !(1..=LEVELS_MAX).contains(&open.levels) {
        let what = format!("{} of a row, not 1 to {LEVELS_MAX}", open.levels);
        return Err(Place::Section(PREFIXES).problem(what));
    }
    if let Some(width) =
        open.projected.filter(|width| width % 64 != 0 || !(64..=512).contains(width))
    {
        let what = format!("{width} bytes of a row, not a multiple of 64 in 64 to 512");
        return Err(Place::Section(PROJECTED_CODES).problem(what));
    }
    let mut wanted = wanted_sections(header, &open).into_iter().peekable();
    let mut last_kind = 0;
    for entry in entries.chunks_exact(ENTRY as usize) {
        let kind = u32_at(entry, 0);
        if kind <= last_kind {
            return Err(Place::Table.problem(format!("type {kind} comes behind {last_kind}")));
        }
        last_kind = kind;
        let shape = match name(kind) {
            Some(_) => Some(wanted.next_if(|shape| shape.kind == kind).ok_or_else(|| {
                let missing = wanted.peek().map_or("no further one", |shape| shape.name());
                let what = format!("is there; the header asks for {missing} in its place");
                Place::Section(kind).problem(what)
            })?),
            None if u32_at(entry, 4) & MAY_BE_SKIPPED != 0 => None,
            None => {
                return Err(Problem::Version(format!("section {kind} must be known and is not")));
            }
        };
        let section = place_section(entry, kind, shape, &mut sums, sum_at, header, table.end)?;
        sum_at += 8 * section.sums.len() as u64;
        table.end = section.padded_end;
        table.sections.push(section);
    }
    if let Some(missing) = wanted.next() {
        return Err(Place::Section(missing.kind).problem("is missing"));
    }
    if table.end != header.file_bytes - TAIL {
        let what = format!("sections end at {}, the tail is not there", table.end);
        return Err(Place::Table.problem(what));
    }
    Ok(table)
}

/// Everything between the header and the first section, its sum checked; and how many bytes of it
/// the entries are.
fn read_summed(source: &mut impl Source, header: &Header) -> Result<(Vec<u8>, usize), Problem> {
    let wrong = |what: &str| Err(Place::Table.problem(what));
    let room = header.file_bytes - TAIL;
    let entries_end = PAGE + ENTRY * u64::from(header.sections);
    if entries_end > room {
        return wrong("does not fit into the file");
    }
    let mut bytes = vec![0; (entries_end - PAGE) as usize];
    source.read_at(PAGE, &mut bytes)?;
    let mut chunks = 0;
    for entry in bytes.chunks_exact(ENTRY as usize) {
        let length = u64_at(entry, 16);
        if length > room {
            return wrong("a section is longer than the file");
        }
        chunks += length.div_ceil(CHUNK);
    }
    let end = round_to_page(entries_end + 8 * chunks).filter(|&end| end <= room);
    let Some(end) = end else { return wrong("the sums of chunks do not fit into the file") };
    let entries = bytes.len();
    bytes.resize((end - PAGE) as usize, 0);
    source.read_at(PAGE, &mut bytes)?;
    if sum(&bytes, 0) != header.table_sum {
        return wrong("its sum does not fit");
    }
    if !zeros(&bytes[entries + 8 * chunks as usize..]) {
        return wrong("bytes behind the sums of chunks are not zero");
    }
    Ok((bytes, entries))
}

/// One entry: that it is the section that the header requires, right behind the one before.
fn place_section(
    entry: &[u8],
    kind: u32,
    shape: Option<Shape>,
    sums: &mut impl Iterator<Item = u64>,
    sum_at: u64,
    header: &Header,
    begin: u64,
) -> Result<Section, Problem> {
    let wrong = |what: String| Err(Place::Section(kind).problem(what));
    let (bytes, item, items) = (u64_at(entry, 16), u32_at(entry, 24), u64_at(entry, 32));
    let must_be_known = kind <= CALIBRATION
        || (LAYERS..=PREFIXES).contains(&kind)
        || [SCALED_CODES, SCALED_CENTRES].contains(&kind);
    let flags = if must_be_known { 0 } else { MAY_BE_SKIPPED };
    if u32_at(entry, 4) != flags || u32_at(entry, 28) != 0 {
        return wrong(
            "flags, or the word at byte 28, of its entry are not what they must be".into(),
        );
    }
    if u64_at(entry, 8) != begin {
        return wrong(format!("begins at {}, not at {begin}", u64_at(entry, 8)));
    }
    if item == 0 || items.checked_mul(item.into()) != Some(bytes) {
        return wrong(format!("{items} items of {item} bytes are not {bytes} bytes"));
    }
    if let Some(shape) = shape {
        if u64::from(item) != shape.item || !(shape.items_min..=shape.items_max).contains(&items) {
            let Shape { item: wanted, items_max: count, .. } = shape;
            let what = format!("{items} items of {item} bytes, not {count} of {wanted}");
            return wrong(what);
        }
    }
    if u64_at(entry, 40) != CHUNK {
        return wrong(format!("chunks of {} bytes, not {CHUNK}", u64_at(entry, 40)));
    }
    if u64_at(entry, 48) != sum_at {
        return wrong(format!("sums at {}, not at {sum_at}", u64_at(entry, 48)));
    }
    let end = begin.checked_add(bytes).and_then(round_to_page);
    let Some(padded_end) = end.filter(|&end| end <= header.file_bytes - TAIL) else {
        return wrong("goes beyond the file".into());
    };
    let sums: Vec<u64> = sums.by_ref().take(bytes.div_ceil(CHUNK) as usize).collect();
    let stored: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    if sum(&stored, 0) != u64_at(entry, 56) {
        return wrong("the sum of its chunks' sums does not fit".into());
    }
    Ok(Section { kind, offset: begin, bytes, item, padded_end, sums })
}

/// What the header's numbers say about a section.
#[derive(Debug, Clone, Copy)]
struct Shape {
    kind: u32,
    item: u64,
    items_min: u64,
    items_max: u64,
}

impl Shape {
    fn name(&self) -> &'static str {
        name(self.kind).unwrap_or("nothing")
    }
}

/// What the table alone says: whether there are queries, scaled codes, curves of devices, of their walks' first answers
/// and of slacks, covering heads, half codes, and how well codes order rows, and of rows of varying length how many edges
/// they have, and how many prefixes each.
struct Open {
    has_queries: bool,
    has_scaled: bool,
    has_devices: bool,
    has_first: bool,
    has_slacks: bool,
    has_covering: bool,
    has_halves: bool,
    has_order: bool,
    /// Bytes of a projected code.
    projected: Option<u64>,
    has_projected_order: bool,
    edges: u64,
    levels: u64,
}

/// The known sections that a file with this header has, by ascending type.
fn wanted_sections(header: &Header, open: &Open) -> Vec<Shape> {
    let (rows, graph, ids) = (header.rows, header.has_graph(), header.has_ids);
    let coded = header.codes.bytes().is_some();
    let lengths = header.metric == Metric::Cosine;
    let variable = header.has_variable_rows();
    let covers = header.graph == Graph::Cagra;
    // Checked where the table is read: at most 512.
    let width = open.projected.unwrap_or(0);
    let projected_stride = header.projected_stride().unwrap_or(0);
    let projects = open.projected.is_some() && header.projected_stride().is_some();
    let half_stride = header.half_stride().unwrap_or(0);
    let halves = open.has_halves && header.half_stride().is_some();
    let shape = |kind, item, items| Shape { kind, item, items_min: items, items_max: items };
    let all = [
        (true, shape(ROWS, header.row_stride, rows)),
        (ids, shape(IDS, 8, rows)),
        (ids, shape(ORDER, 4, rows)),
        (lengths, shape(LENGTHS, 4, rows)),
        (coded, shape(CENTRE, 4, header.code_columns())),
        (coded, shape(CODES, header.code_stride, rows)),
        (
            graph,
            shape(EDGES, 4, if variable { open.edges } else { rows * u64::from(header.degree) }),
        ),
        (graph, shape(ENTRIES, 4, header.entry_points.into())),
        (graph, Shape { items_min: 0, ..shape(CALIBRATION, CURVE, CURVES_MAX) }),
        (
            graph && open.has_queries,
            Shape { items_min: 1, ..shape(QUERIES, header.query_bytes(), QUERIES_MAX) },
        ),
        (header.has_layers(), Shape { items_min: 8, ..shape(LAYERS, 4, u64::MAX) }),
        (header.has_layers(), shape(NEAREST, 4, 2)),
        (variable, shape(PREFIXES, 2 * open.levels, rows)),
        (graph && coded && open.has_scaled, shape(SCALED_CODES, header.scaled_stride(), rows)),
        (
            graph && coded && open.has_scaled,
            Shape {
                items_min: 2 * u64::from(header.dim),
                ..shape(SCALED_CENTRES, 4, (CELLS_MAX + 1) * u64::from(header.dim))
            },
        ),
        (
            graph && open.has_devices,
            Shape { items_min: 1, ..shape(DEVICE_CURVES, DEVICE_CURVE, DEVICE_CURVES_MAX) },
        ),
        (
            graph && open.has_slacks,
            Shape { items_min: 1, ..shape(SLACK_CURVES, SLACK_CURVE, SLACK_CURVES_MAX) },
        ),
        (graph && coded && open.has_order && !projects, shape(CODE_ORDER, 8, 3)),
        (projects, shape(PROJECTED_CODES, width, rows)),
        (projects, shape(PROJECTION, 1, PROJECTION_HEAD + width * (4 + projected_stride))),
        (projects && open.has_projected_order, shape(PROJECTED_ORDER, 8, 3)),
        (
            graph && open.has_devices && open.has_first,
            Shape { items_min: 1, ..shape(FIRST_CURVES, DEVICE_CURVE, FIRST_CURVES_MAX) },
        ),
        (
            covers && open.has_covering,
            Shape { items_min: 1, ..shape(COVERING_HEADS, 4, COVERING_HEADS_MAX) },
        ),
        (
            covers && open.has_covering,
            Shape { items_min: 1, ..shape(COVERING_CURVES, SLACK_CURVE, SLACK_CURVES_MAX) },
        ),
        (graph && halves, shape(HALF_CODES, half_stride, rows)),
    ];
    all.into_iter().filter(|(there, _)| *there).map(|(_, shape)| shape).collect()
}
