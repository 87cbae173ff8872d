//! Section 4 of the specification: what the values of a section may be. A hostile file has good
//! sums, so every value is looked at.

use crate::header::{Codes, Element, Header};
use crate::source::{f32_at, f64_at, u32_at, u64_at, zeros};
use crate::table::{self, Section, CURVE, DEVICE_CURVE, PROJECTION_HEAD, SLACK_CURVE};

const PLACES: usize = 24;
const BEAM_MAX: u32 = 65_536;
const CLASSES_MAX: usize = 16;
const CURVES_OF_WALKERS_MAX: usize = 5;
const FIRST_ANSWERS: u32 = 10;
const EXPANSIONS_MAX: f64 = 2_147_483_646.0;
const SLACK_MAX: f64 = 3.0;
const OFFSET_MAX: i32 = 1 << 27;

/// What one section says and a later one needs.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub ids: Vec<u64>,
    pub curves: u64,
    pub edges: u64,
    /// Cells that scaled codes name, at least.
    pub cells: u64,
    /// Bytes of a projected code.
    pub projected: u64,
    /// Classes of devices that have curves, in their order.
    pub classes: Vec<DeviceClass>,
}

type Outcome = Result<(), String>;

/// What a number in a padded row may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Any,
    F32,
    F16,
    Bf16,
}

/// The checks of one section, which gets its chunks in turn.
#[derive(Debug)]
pub(crate) enum Values {
    /// Rows of `stride` bytes, of which the first `used` are numbers.
    Padded {
        stride: u64,
        used: u64,
        number: Number,
        at: u64,
    },
    Ids,
    Order {
        rows: u64,
        at: u64,
        last: Option<u64>,
    },
    Floats {
        may_be_negative: bool,
        at: u64,
    },
    Edges {
        rows: u32,
        degree: u64,
        at: u64,
        ended: bool,
    },
    /// Edges of rows of varying length, which stand one behind the other.
    AllEdges {
        rows: u32,
        at: u64,
    },
    /// How long rows are for each of `levels`.
    Prefixes {
        levels: u64,
        degree: u32,
        at: u64,
        last: u16,
        edges: u64,
    },
    Entries {
        rows: u32,
        last: Option<u32>,
    },
    Curves {
        bytes: Vec<u8>,
    },
    /// Codes of `dim` bytes with terms behind them; the centres come later.
    ScaledCodes {
        dim: u64,
        terms: u64,
        stride: u64,
        at: u64,
        most: u32,
        bytes: Vec<u8>,
    },
    ScaledCentres {
        dim: u64,
        at: u64,
    },
    Layers {
        rows: u32,
        degree: u64,
        bytes: Vec<u8>,
    },
    DeviceCurves {
        bytes: Vec<u8>,
    },
    FirstCurves {
        bytes: Vec<u8>,
    },
    SlackCurves {
        bytes: Vec<u8>,
    },
    Shares,
    /// Bytes of any value, `width` a row.
    ProjectedCodes {
        width: u64,
    },
    /// A factor, zeros and an offset for each byte of a projected code; then directions of any value.
    Projection {
        at: u64,
    },
    Unknown,
}

impl Values {
    pub fn of(section: &Section, header: &Header) -> Self {
        // At most ROWS_MAX, which the header's check has seen to.
        let rows = header.rows as u32;
        match section.kind {
            table::ROWS => Values::Padded {
                stride: header.row_stride,
                used: u64::from(header.dim) * header.element.bytes(),
                number: match header.element {
                    Element::F32 => Number::F32,
                    Element::F16 => Number::F16,
                    Element::Bf16 => Number::Bf16,
                    Element::I8 | Element::U8 => Number::Any,
                },
                at: 0,
            },
            table::IDS => Values::Ids,
            table::ORDER => Values::Order { rows: header.rows, at: 0, last: None },
            table::LENGTHS => Values::Floats { may_be_negative: false, at: 0 },
            table::CENTRE => Values::Floats { may_be_negative: true, at: 0 },
            table::CODES => Values::Padded {
                stride: header.code_stride,
                used: header.code_columns() * header.codes.bytes().unwrap_or(0),
                number: if header.codes == Codes::Floats { Number::F32 } else { Number::Any },
                at: 0,
            },
            table::HALF_CODES => Values::Padded {
                stride: section.item.into(),
                used: 2 * u64::from(header.dim),
                number: Number::F16,
                at: 0,
            },
            table::EDGES if header.has_variable_rows() => Values::AllEdges { rows, at: 0 },
            table::PREFIXES => Values::Prefixes {
                levels: u64::from(section.item / 2),
                degree: header.degree,
                at: 0,
                last: 0,
                edges: 0,
            },
            table::EDGES => {
                Values::Edges { rows, degree: header.degree.into(), at: 0, ended: false }
            }
            table::ENTRIES | table::COVERING_HEADS => Values::Entries { rows, last: None },
            table::LAYERS => {
                Values::Layers { rows, degree: header.degree.into(), bytes: Vec::new() }
            }
            table::NEAREST => Values::Floats { may_be_negative: false, at: 0 },
            table::CALIBRATION => Values::Curves { bytes: Vec::new() },
            table::SCALED_CODES => Values::ScaledCodes {
                dim: header.dim.into(),
                terms: header.scaled_terms(),
                stride: header.scaled_stride(),
                at: 0,
                most: 0,
                bytes: Vec::new(),
            },
            table::SCALED_CENTRES => Values::ScaledCentres { dim: header.dim.into(), at: 0 },
            table::DEVICE_CURVES => Values::DeviceCurves { bytes: Vec::new() },
            table::FIRST_CURVES => Values::FirstCurves { bytes: Vec::new() },
            table::SLACK_CURVES | table::COVERING_CURVES => {
                Values::SlackCurves { bytes: Vec::new() }
            }
            table::CODE_ORDER | table::PROJECTED_ORDER => Values::Shares,
            table::PROJECTED_CODES => Values::ProjectedCodes { width: section.item.into() },
            table::PROJECTION => Values::Projection { at: 0 },
            table::QUERIES => match header.element {
                Element::I8 | Element::U8 => Values::Unknown,
                _ => Values::Floats { may_be_negative: true, at: 0 },
            },
            _ => Values::Unknown,
        }
    }

    pub fn take(&mut self, chunk: &[u8], known: &mut Known) -> Outcome {
        match self {
            Values::Padded { stride, used, number, at } => {
                padded_rows(chunk, *stride, *used, *number, at)
            }
            Values::Ids => ids(chunk, &mut known.ids),
            Values::Order { rows, at, last } => order(chunk, *rows, &known.ids, at, last),
            Values::Floats { may_be_negative, at } => floats(chunk, *may_be_negative, at),
            Values::Edges { rows, degree, at, ended } => edges(chunk, *rows, *degree, at, ended),
            Values::AllEdges { rows, at } => {
                let result = all_edges(chunk, *rows, at);
                known.edges = *at;
                result
            }
            Values::Prefixes { levels, degree, at, last, edges } => {
                prefixes(chunk, *levels, *degree, at, last, edges)
            }
            Values::Entries { rows, last } => entries(chunk, *rows, last),
            Values::ScaledCodes { dim, terms, stride, at, most, bytes } => {
                bytes.extend_from_slice(chunk);
                let whole = bytes.len() - bytes.len() % *stride as usize;
                for code in bytes[..whole].chunks_exact(*stride as usize) {
                    let cell = scaled_code(code, *dim as usize, *terms as usize)
                        .map_err(|what| format!("row {at}: {what}"))?;
                    *most = cell.max(*most);
                    *at += 1;
                }
                bytes.drain(..whole);
                Ok(())
            }
            Values::ScaledCentres { at, .. } => floats(chunk, true, at),
            Values::Shares => {
                match chunk
                    .chunks_exact(8)
                    .map(|share| f64_at(share, 0))
                    .find(|s| !(0.0..=1.0).contains(s))
                {
                    Some(share) => Err(format!("{share} is no share")),
                    None => Ok(()),
                }
            }
            Values::Curves { bytes }
            | Values::DeviceCurves { bytes }
            | Values::FirstCurves { bytes }
            | Values::SlackCurves { bytes }
            | Values::Layers { bytes, .. } => {
                bytes.extend_from_slice(chunk);
                Ok(())
            }
            Values::ProjectedCodes { width } => {
                known.projected = *width;
                Ok(())
            }
            Values::Projection { at } => {
                // All that is checked lies in the first chunk.
                let result = if *at == 0 { projection(chunk, known.projected) } else { Ok(()) };
                *at += chunk.len() as u64;
                result
            }
            Values::Unknown => Ok(()),
        }
    }

    pub fn finish(self, known: &mut Known) -> Outcome {
        match self {
            Values::Curves { bytes } => {
                known.curves = bytes.len() as u64 / CURVE;
                curves(&bytes)
            }
            Values::Prefixes { edges, .. } if edges != known.edges => {
                Err(format!("rows have {edges} edges, of which {} are there", known.edges))
            }
            Values::DeviceCurves { bytes } => {
                known.classes = device_curves(&bytes)?;
                Ok(())
            }
            Values::FirstCurves { bytes } => first_curves(&bytes, &known.classes),
            Values::SlackCurves { bytes } => slack_curves(&bytes),
            Values::ScaledCodes { at, most, .. } => {
                known.cells = if at == 0 { 0 } else { u64::from(most) + 1 };
                Ok(())
            }
            Values::ScaledCentres { dim, at } => {
                // One row more than there are cells.
                if at % dim != 0 || at / dim <= known.cells {
                    return Err(format!("{at} values are no {} cells of {dim}", known.cells));
                }
                Ok(())
            }
            Values::Layers { rows, degree, bytes } => layers(&bytes, rows, degree),
            _ => Ok(()),
        }
    }
}

/// What stands before the directions of a projection to `width` bytes.
fn projection(bytes: &[u8], width: u64) -> Outcome {
    let (head, rest) = bytes.split_at(PROJECTION_HEAD as usize);
    let factor = f32_at(head, 0);
    if !factor.is_finite() || factor <= 0.0 {
        return Err(format!("the factor is {factor}"));
    }
    if !zeros(&head[4..]) {
        return Err("bytes behind the factor are not zero".into());
    }
    let offsets = words(rest).take(width as usize).map(|word| word as i32);
    match offsets.enumerate().find(|(_, offset)| !(-OFFSET_MAX..=OFFSET_MAX).contains(offset)) {
        Some((place, offset)) => Err(format!("offset {place} is {offset}")),
        None => Ok(()),
    }
}

/// The cell of a scaled code, whose terms are sound.
fn scaled_code(code: &[u8], dim: usize, terms: usize) -> Result<u32, String> {
    let (scale, offset) = (f32_at(code, terms), f32_at(code, terms + 4));
    if !scale.is_finite() || scale < 0.0 || !offset.is_finite() || u32_at(code, terms + 12) != 0 {
        return Err(format!("its terms are {scale} and {offset}, or the word behind is not zero"));
    }
    if !zeros(&code[dim..terms]) || !zeros(&code[terms + 16..]) {
        return Err("its code is not filled up with zeros".into());
    }
    Ok(u32_at(code, terms + 8))
}

fn words(chunk: &[u8]) -> impl Iterator<Item = u32> + '_ {
    chunk.chunks_exact(4).map(|word| u32_at(word, 0))
}

fn padded_rows(mut chunk: &[u8], stride: u64, used: u64, number: Number, at: &mut u64) -> Outcome {
    while !chunk.is_empty() {
        let (row, byte) = (*at / stride, *at % stride);
        let end = if byte < used { used } else { stride };
        let (part, rest) = chunk.split_at(chunk.len().min((end - byte) as usize));
        if byte < used {
            if let Some((column, what)) = first_not_finite(part, number, byte) {
                return Err(format!("row {row}, column {column} is {what}"));
            }
        } else if !zeros(part) {
            return Err(format!("row {row} is not filled up with zeros"));
        }
        *at += part.len() as u64;
        chunk = rest;
    }
    Ok(())
}

/// The first NaN or infinity among numbers that start at byte `at` of their row, and its column.
fn first_not_finite(part: &[u8], number: Number, at: u64) -> Option<(u64, &'static str)> {
    // All bits of the exponent, in the upper bytes of a number.
    let (bytes, exponent) = match number {
        Number::Any => return None,
        Number::F32 => (4, 0x7f80),
        Number::F16 => (2, 0x7c00),
        Number::Bf16 => (2, 0x7f80),
    };
    let is_finite = |value: &[u8]| {
        let upper = u16::from_le_bytes([value[bytes - 2], value[bytes - 1]]);
        upper & exponent != exponent
    };
    let place = part.chunks_exact(bytes).position(|value| !is_finite(value))?;
    Some((at / bytes as u64 + place as u64, "not finite"))
}

fn ids(chunk: &[u8], ids: &mut Vec<u64>) -> Outcome {
    let new = chunk.chunks_exact(8).map(|id| u64_at(id, 0));
    ids.try_reserve(chunk.len() / 8).map_err(|_| "no memory for the ids".to_string())?;
    for id in new {
        if id == u64::MAX {
            return Err(format!("row {} has the id that stands for none", ids.len()));
        }
        ids.push(id);
    }
    Ok(())
}

/// Ids that ascend along as many rows as there are make each row occur once and all ids distinct.
fn order(chunk: &[u8], rows: u64, ids: &[u64], at: &mut u64, last: &mut Option<u64>) -> Outcome {
    for row in words(chunk) {
        let Some(&id) = ids.get(row as usize) else {
            return Err(format!("place {at} names row {row} of {rows}"));
        };
        if last.is_some_and(|last| id <= last) {
            return Err(format!("the id at place {at} is not above the one before"));
        }
        *last = Some(id);
        *at += 1;
    }
    Ok(())
}

fn floats(chunk: &[u8], may_be_negative: bool, at: &mut u64) -> Outcome {
    for value in chunk.chunks_exact(4).map(|value| f32_at(value, 0)) {
        if !value.is_finite() || value < 0.0 && !may_be_negative {
            return Err(format!("value {at} is {value}"));
        }
        *at += 1;
    }
    Ok(())
}

fn edges(chunk: &[u8], rows: u32, degree: u64, at: &mut u64, ended: &mut bool) -> Outcome {
    for edge in words(chunk) {
        let (row, place) = (*at / degree, *at % degree);
        *ended = *ended && place != 0;
        if edge == u32::MAX {
            *ended = true;
        } else if *ended {
            return Err(format!("row {row} has an edge behind an unused place"));
        } else if edge >= rows {
            return Err(format!("edge {place} of row {row} leads to row {edge} of {rows}"));
        }
        *at += 1;
    }
    Ok(())
}

fn all_edges(chunk: &[u8], rows: u32, at: &mut u64) -> Outcome {
    for edge in words(chunk) {
        if edge >= rows {
            return Err(format!("edge {at} leads to row {edge} of {rows}"));
        }
        *at += 1;
    }
    Ok(())
}

/// Sums the last prefix of each row, which is its length.
fn prefixes(
    chunk: &[u8],
    levels: u64,
    degree: u32,
    at: &mut u64,
    last: &mut u16,
    edges: &mut u64,
) -> Outcome {
    for length in chunk.chunks_exact(2).map(|length| u16::from_le_bytes([length[0], length[1]])) {
        let (row, level) = (*at / levels, *at % levels);
        if u32::from(length) > degree || level > 0 && length < *last {
            return Err(format!("prefix {level} of row {row} is {length}, behind {last}"));
        }
        if level + 1 == levels {
            *edges += u64::from(length);
        }
        *last = length;
        *at += 1;
    }
    Ok(())
}

fn entries(chunk: &[u8], rows: u32, last: &mut Option<u32>) -> Outcome {
    for entry in words(chunk) {
        if entry >= rows || last.is_some_and(|last| entry <= last) {
            return Err(format!("entry {entry} of {rows} rows, behind {last:?}"));
        }
        *last = Some(entry);
    }
    Ok(())
}

/// Eight numbers, then rows and edges of each layer above the bottom.
fn layers(bytes: &[u8], rows: u32, degree: u64) -> Outcome {
    let (numbers, mut rest) = bytes.split_at(32);
    let counts: Vec<u32> = words(numbers).collect();
    let layers = counts[0] as usize;
    if layers > 7 || counts[1..].iter().enumerate().any(|(i, &own)| (own == 0) != (i >= layers)) {
        return Err(format!("{counts:?} are no numbers of layers and rows"));
    }
    let mut below = rows;
    for (number, &own) in counts[1..=layers].iter().enumerate() {
        let (own_bytes, edge_bytes) = (4 * u64::from(own), 4 * u64::from(own) * degree);
        if (rest.len() as u64) < own_bytes + edge_bytes {
            return Err(format!("layer {} goes beyond the section", number + 1));
        }
        let (names, behind) = rest.split_at(own_bytes as usize);
        let (links, behind) = behind.split_at(edge_bytes as usize);
        entries(names, below, &mut None)?;
        edges(links, own, degree, &mut 0, &mut false)?;
        (below, rest) = (own, behind);
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err("bytes stand behind the last layer".into()),
    }
}

fn curves(bytes: &[u8]) -> Outcome {
    let mut last_k = None;
    for (number, curve) in bytes.chunks_exact(CURVE as usize).enumerate() {
        let k = u32_at(curve, 0);
        if k == 0 || last_k.is_some_and(|last| k <= last) {
            return Err(format!("curve {number} has k {k}, behind {last_k:?}"));
        }
        last_k = Some(k);
        points(curve).map_err(|what| format!("curve {number}: {what}"))?;
    }
    Ok(())
}

fn points(curve: &[u8]) -> Outcome {
    let count = u32_at(curve, 4) as usize;
    if !(1..=PLACES).contains(&count) {
        return Err(format!("{count} points, not 1 to {PLACES}"));
    }
    let (used, unused) = curve[8..].split_at(16 * count);
    let (mut last_beam, mut last_recall) = (0, 0.0);
    for (place, point) in used.chunks_exact(16).enumerate() {
        let (beam, recall) = (u32_at(point, 0), f64_at(point, 8));
        if beam <= last_beam || beam > BEAM_MAX {
            return Err(format!("point {place} has beam {beam}, behind {last_beam}"));
        }
        // False for NaN.
        let rises = recall >= last_recall && recall <= 1.0;
        if !rises || u32_at(point, 4) != 0 {
            return Err(format!("point {place} has recall {recall}, behind {last_recall}"));
        }
        (last_beam, last_recall) = (beam, recall);
    }
    match zeros(unused) {
        true => Ok(()),
        false => Err("unused places are not zero".into()),
    }
}

fn slack_curves(bytes: &[u8]) -> Outcome {
    let mut last_k = None;
    for (number, curve) in bytes.chunks_exact(SLACK_CURVE as usize).enumerate() {
        let k = u32_at(curve, 0);
        if k == 0 || last_k.is_some_and(|last| k <= last) {
            return Err(format!("curve {number} by slack has k {k}, behind {last_k:?}"));
        }
        last_k = Some(k);
        slack_points(curve).map_err(|what| format!("curve {number} by slack: {what}"))?;
    }
    Ok(())
}

fn slack_points(curve: &[u8]) -> Outcome {
    let count = u32_at(curve, 4) as usize;
    if !(1..=PLACES).contains(&count) {
        return Err(format!("{count} points, not 1 to {PLACES}"));
    }
    let (used, unused) = curve[8..].split_at(32 * count);
    let (mut last_slack, mut last_recall) = (f64::NEG_INFINITY, 0.0);
    for (place, point) in used.chunks_exact(32).enumerate() {
        let [slack, recall, expansions, beam] = [0, 8, 16, 24].map(|at| f64_at(point, at));
        // False for NaN.
        let rises = slack > last_slack && recall >= last_recall;
        let in_range = (0.0..=SLACK_MAX).contains(&slack)
            && recall <= 1.0
            && (0.0..=EXPANSIONS_MAX).contains(&expansions)
            && (1.0..=f64::from(BEAM_MAX)).contains(&beam);
        if !rises || !in_range {
            return Err(format!("point {place} is {slack}, {recall}, {expansions}, {beam}"));
        }
        (last_slack, last_recall) = (slack, recall);
    }
    match zeros(unused) {
        true => Ok(()),
        false => Err("unused places are not zero".into()),
    }
}

/// Compute capability, multiprocessors, and rows of a block's longest list.
type DeviceClass = [u32; 3];
/// The place of a curve of a device: its class, who walks, and k.
type DevicePlace = (DeviceClass, u32, u32);

/// The classes that have curves.
fn device_curves(bytes: &[u8]) -> Result<Vec<DeviceClass>, String> {
    let mut last: Option<DevicePlace> = None;
    let mut classes = Vec::new();
    let mut of_walkers = 0;
    for (number, curve) in bytes.chunks_exact(DEVICE_CURVE as usize).enumerate() {
        let wrong = |what: String| format!("curve {number} of a device {what}");
        let place = device_place(curve).map_err(wrong)?;
        if last.is_some_and(|last| place <= last) {
            return Err(wrong(format!("is at {place:?}, behind {last:?}")));
        }
        let same_class = last.is_some_and(|last| last.0 == place.0);
        let same_walkers = same_class && last.is_some_and(|last| last.1 == place.1);
        if !same_class {
            classes.push(place.0);
        }
        of_walkers = if same_walkers { of_walkers + 1 } else { 1 };
        if classes.len() > CLASSES_MAX || of_walkers > CURVES_OF_WALKERS_MAX {
            return Err(wrong("is one too many".into()));
        }
        device_points(curve).map_err(wrong)?;
        last = Some(place);
    }
    Ok(classes)
}

/// Curves of the first answers of walks for a hundred: one at most for each class and who walks.
fn first_curves(bytes: &[u8], classes: &[DeviceClass]) -> Outcome {
    let mut last: Option<DevicePlace> = None;
    for (number, curve) in bytes.chunks_exact(DEVICE_CURVE as usize).enumerate() {
        let wrong = |what: String| format!("curve {number} of first answers {what}");
        let place = device_place(curve).map_err(wrong)?;
        if place.2 != FIRST_ANSWERS {
            return Err(wrong(format!("has k {}, not {FIRST_ANSWERS}", place.2)));
        }
        if last.is_some_and(|last| place <= last) {
            return Err(wrong(format!("is at {place:?}, behind {last:?}")));
        }
        if !classes.contains(&place.0) {
            return Err(wrong(format!("is of devices {:?}, which have no others", place.0)));
        }
        if u32_at(curve, 24) == 0 {
            return Err(wrong("has no points".into()));
        }
        device_points(curve).map_err(wrong)?;
        last = Some(place);
    }
    Ok(())
}

fn device_place(curve: &[u8]) -> Result<DevicePlace, String> {
    let [warps, at_once, k, zero] = [12, 16, 20, 28].map(|at| u32_at(curve, at));
    let walkers = match (warps, at_once) {
        (1, 0) => 0,
        (8, 0) => 1,
        (16, 0) => 2,
        (1, 1) => 3,
        _ => return Err(format!("has {warps} warps, at once {at_once}")),
    };
    if k == 0 || zero != 0 {
        return Err(format!("has k {k}, behind it {zero}"));
    }
    Ok(([0, 4, 8].map(|at| u32_at(curve, at)), walkers, k))
}

fn device_points(curve: &[u8]) -> Outcome {
    let count = u32_at(curve, 24) as usize;
    if count > PLACES {
        return Err(format!("has {count} points, at most {PLACES} fit"));
    }
    let (used, unused) = curve[32..].split_at(32 * count);
    let (mut last_recall, mut last_slack) = (0.0, -1.0);
    for (place, point) in used.chunks_exact(32).enumerate() {
        let [recall, slack, most, mean] = [0, 8, 16, 24].map(|at| f64_at(point, at));
        // False for NaN.
        let rises = recall >= last_recall && recall <= 1.0 && slack > last_slack && slack <= 100.0;
        let in_range = |number: f64| (0.0..=EXPANSIONS_MAX).contains(&number);
        if !rises || !in_range(most) || !in_range(mean) {
            return Err(format!("has point {place} of {recall}, {slack}, {most}, {mean}"));
        }
        (last_recall, last_slack) = (recall, slack);
    }
    match zeros(unused) {
        true => Ok(()),
        false => Err("has unused places that are not zero".into()),
    }
}
