//! Section 2 of the specification: the header.

use crate::source::{bytes_at, f32_at, f64_at, u16_at, u32_at, u64_at, zeros};
use crate::{sum, Place, Problem, PAGE};

const MAGIC: [u8; 8] = *b"\x8aGNT\r\n\x1a\n";
const BYTE_ORDER: u32 = 0x0102_0304;
/// The flag of a file whose graph has layers.
const FEATURE_LAYERS: u64 = 1;
const MAJOR: u16 = 1;
const SECTIONS_MAX: u32 = 64;
const VARIABLE_ROWS: u64 = 2;
/// Curves of slacks are of walks that 1.10 alone made.
const SLACK_SPREAD: u64 = 4;
const ROWS_MAX: u64 = 2_147_483_646;

macro_rules! coded {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$value_meta:meta])* $value:ident = $code:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$value_meta])* $value = $code,)+
        }

        impl $name {
            fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$value),)+
                    _ => None,
                }
            }

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }
    };
}

coded! {
    /// How distances are measured.
    pub enum Metric {
        /// Squared Euclidean distance.
        L2 = 1, "squared L2";
        /// Inner product.
        InnerProduct = 2, "inner product";
        /// Cosine.
        Cosine = 3, "cosine";
    }
}

coded! {
    /// The type of a coordinate.
    pub enum Element {
        /// binary32.
        F32 = 1, "f32";
        /// binary16.
        F16 = 2, "f16";
        /// The upper half of a binary32.
        Bf16 = 3, "bf16";
        /// Signed byte.
        I8 = 4, "i8";
        /// Unsigned byte.
        U8 = 5, "u8";
    }
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            Element::F32 => 4,
            Element::F16 | Element::Bf16 => 2,
            Element::I8 | Element::U8 => 1,
        }
    }

    fn is_whole(self) -> bool {
        matches!(self, Element::I8 | Element::U8)
    }
}

coded! {
    /// The graph that searches walk.
    pub enum Graph {
        /// CAGRA's.
        Cagra = 1, "CAGRA";
        /// None: rows only.
        None = 2, "no graph";
        /// GGNN's.
        Ggnn = 3, "GGNN";
        /// TSDG's, with rows of varying length.
        Tsdg = 4, "TSDG";
    }
}

coded! {
    /// What searches compare with while they walk.
    pub enum Codes {
        /// Nothing, as there is no graph.
        None = 0, "no codes";
        /// The rows themselves.
        Rows = 1, "rows as codes";
        /// A byte a column.
        Bytes = 2, "codes of bytes";
        /// A float a column.
        Floats = 3, "codes of floats";
    }
}

impl Codes {
    /// Bytes of a column, for codes that have a section.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            Codes::None | Codes::Rows => None,
            Codes::Bytes => Some(1),
            Codes::Floats => Some(4),
        }
    }
}

/// The fields of a header.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Header {
    /// Minor version of the format.
    pub minor: u16,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Equal for equal indexes.
    pub content_id: [u8; 16],
    /// Number of sections.
    pub sections: u32,
    /// Version of the library that wrote the file: major << 16 | minor << 8 | patch.
    pub writer: u32,
    /// How distances are measured.
    pub metric: Metric,
    /// The type of the rows' coordinates.
    pub element: Element,
    /// The graph.
    pub graph: Graph,
    /// Number of rows.
    pub rows: u64,
    /// Columns of a row.
    pub dim: u32,
    /// Edges of a row.
    pub degree: u32,
    /// Rows where searches start.
    pub entry_points: u32,
    /// Whether rows have ids other than their numbers.
    pub has_ids: bool,
    /// Seed of the build.
    pub seed: u64,
    /// Bytes from one row to the next.
    pub row_stride: u64,
    /// Bytes from one code to the next.
    pub code_stride: u64,
    /// What searches compare with.
    pub codes: Codes,
    /// The highest mean recall@10 seen while calibrating; 0: none.
    pub recall_max: f32,
    /// Sum of the section table and the sums in it.
    pub(crate) table_sum: u64,
}

impl Header {
    /// Columns of a code: those of inner product are wider.
    pub(crate) fn code_columns(&self) -> u64 {
        u64::from(self.dim) + if self.metric == Metric::InnerProduct { 16 } else { 0 }
    }

    /// Bytes of a query that is kept to calibrate on: of f32 for rows of floats.
    pub(crate) fn query_bytes(&self) -> u64 {
        u64::from(self.dim) * if self.element.bytes() == 1 { 1 } else { 4 }
    }

    pub(crate) fn has_variable_rows(&self) -> bool {
        self.graph == Graph::Tsdg
    }

    /// Where the terms of a scaled code stand.
    pub(crate) fn scaled_terms(&self) -> u64 {
        u64::from(self.dim).next_multiple_of(16)
    }

    /// Bytes from one scaled code to the next.
    pub(crate) fn scaled_stride(&self) -> u64 {
        (self.scaled_terms() + 16).next_multiple_of(64)
    }

    /// Bytes from one code that may be projected to the next: codes of bytes, or rows that serve. None where there is no
    /// projection.
    pub(crate) fn projected_stride(&self) -> Option<u64> {
        let stride = match self.codes {
            Codes::Rows => self.row_stride,
            Codes::Bytes => self.code_stride,
            Codes::None | Codes::Floats => return None,
        };
        let may = self.rows > 0 && self.metric != Metric::InnerProduct && stride <= 4096;
        may.then_some(stride)
    }

    /// Bytes from one half code to the next. None where wide codes have none: halves take as many cache lines, or rows
    /// serve.
    pub(crate) fn half_stride(&self) -> Option<u64> {
        let rows_serve =
            self.metric == Metric::L2 && self.element == Element::F16 && self.dim >= 64;
        let stride = (2 * u64::from(self.dim)).next_multiple_of(64);
        let may = self.codes == Codes::Floats
            && self.rows > 0
            && self.metric != Metric::InnerProduct
            && !rows_serve
            && stride < self.code_stride;
        may.then_some(stride)
    }

    pub(crate) fn has_graph(&self) -> bool {
        self.graph != Graph::None
    }

    pub(crate) fn has_layers(&self) -> bool {
        self.graph == Graph::Ggnn
    }

    /// Reads the first page of a file of `size` bytes.
    pub(crate) fn read(page: &[u8; PAGE as usize], size: u64) -> Result<Self, Problem> {
        check_prologue(page, size)?;
        Self::read_numbers(page, size).map_err(|what| Place::Header.problem(what))
    }

    /// The header's numbers and their ranges.
    fn read_numbers(page: &[u8], size: u64) -> Result<Self, String> {
        let word = |at| u32_at(page, at);
        let coded = |what: &str, code: u32| format!("{what} is {code}, which is none");
        let header = Header {
            minor: u16_at(page, 14),
            file_bytes: size,
            content_id: bytes_at(page, 48),
            sections: word(64),
            table_sum: u64_at(page, 80),
            writer: word(96),
            metric: Metric::from_code(word(100)).ok_or_else(|| coded("metric", word(100)))?,
            element: Element::from_code(word(104)).ok_or_else(|| coded("element", word(104)))?,
            graph: Graph::from_code(word(108)).ok_or_else(|| coded("graph", word(108)))?,
            rows: u64_at(page, 112),
            dim: word(120),
            degree: word(124),
            entry_points: word(128),
            has_ids: word(132) == 1,
            seed: u64_at(page, 136),
            row_stride: u64_at(page, 144),
            code_stride: u64_at(page, 152),
            codes: Codes::from_code(word(160)).ok_or_else(|| coded("codes", word(160)))?,
            recall_max: f32_at(page, 172),
        };
        within("sections", header.sections.into(), 0, SECTIONS_MAX.into())?;
        let layers = if header.has_layers() { FEATURE_LAYERS } else { 0 };
        let features = layers | if header.has_variable_rows() { VARIABLE_ROWS } else { 0 };
        let of_curves = if header.graph == Graph::Cagra { SLACK_SPREAD } else { 0 };
        within("features", u64_at(page, 32) & !of_curves, features, features)?;
        within("offset of the section table", u64_at(page, 72), PAGE, PAGE)?;
        within("rows", header.rows, 0, ROWS_MAX)?;
        within("dim", header.dim.into(), 1, 32_768)?;
        within("ids", word(132).into(), 0, u64::from(header.rows > 0))?;
        for at in [68, 180] {
            within(&format!("the word at byte {at}"), word(at).into(), 0, 0)?;
        }
        if !zeros(&page[192..]) {
            return Err("bytes from 192 on are not all zero".into());
        }
        header.check_graph(word(164), word(168))?;
        header.check_strides()?;
        header.check_measures(f32_at(page, 176), f64_at(page, 184))?;
        Ok(header)
    }

    fn check_graph(&self, rounds: u32, repaired: u32) -> Result<(), String> {
        if self.has_graph() {
            within("degree", self.degree.into(), 2, 256)?;
            within("entry points", self.entry_points.into(), self.rows.min(1), self.rows)?;
            let rows_serve = self.metric == Metric::L2 && self.element.is_whole();
            if rows_serve != (self.codes == Codes::Rows) || self.codes == Codes::None {
                return Err(format!(
                    "{} do not go with {} and {}",
                    self.codes.name(),
                    self.metric.name(),
                    self.element.name()
                ));
            }
            return Ok(());
        }
        within("degree without a graph", self.degree.into(), 0, 0)?;
        within("entry points without a graph", self.entry_points.into(), 0, 0)?;
        within("codes without a graph", self.codes as u64, 0, 0)?;
        within("rounds without a graph", rounds.into(), 0, 0)?;
        within("edges to reach rows without a graph", repaired.into(), 0, 0)
    }

    fn check_strides(&self) -> Result<(), String> {
        let row = u64::from(self.dim) * self.element.bytes();
        let to = if self.metric == Metric::L2 && self.element.is_whole() { 64 } else { 16 };
        let wanted = row.next_multiple_of(to);
        within("bytes from one row to the next", self.row_stride, wanted, wanted)?;
        let code = self.code_columns() * self.codes.bytes().unwrap_or(0);
        let wanted = code.next_multiple_of(64);
        within("bytes from one code to the next", self.code_stride, wanted, wanted)
    }

    fn check_measures(&self, factor: f32, longest: f64) -> Result<(), String> {
        let recall = self.recall_max;
        if !(0.0..=1.0).contains(&recall) || recall.to_bits() != 0 && !self.has_graph() {
            return Err(format!("the highest recall is {recall}"));
        }
        let coded = self.codes.bytes().is_some();
        if !(0.0..=f32::MAX).contains(&factor) || !coded && factor.to_bits() != 0 {
            return Err(format!("the factor of codes is {factor:e}"));
        }
        let measured = coded && self.metric == Metric::InnerProduct;
        if !(0.0..=f64::MAX).contains(&longest) || !measured && longest.to_bits() != 0 {
            return Err(format!("the largest length of a row is {longest:e}"));
        }
        Ok(())
    }
}

/// The checks before the numbers: that it is a file of this format, whole.
fn check_prologue(page: &[u8; PAGE as usize], size: u64) -> Result<(), Problem> {
    let wrong = |what: String| Err(Place::Header.problem(what));
    if bytes_at::<8>(page, 0) != MAGIC {
        return wrong("the magic is missing: no file of an index".into());
    }
    if u32_at(page, 8) != BYTE_ORDER {
        return wrong(format!("the byte order is {:#010x}", u32_at(page, 8)));
    }
    let (major, minor) = (u16_at(page, 12), u16_at(page, 14));
    if major != MAJOR {
        let what = format!("version {major}.{minor} of the format; known is {MAJOR}");
        return Err(Problem::Version(what));
    }
    // Those at 16 and 24 may be ignored by a reader that does not write.
    let unknown = u64_at(page, 32) & !(FEATURE_LAYERS | VARIABLE_ROWS | SLACK_SPREAD);
    if unknown != 0 {
        return Err(Problem::Version(format!("features {unknown:#x} must be known and are not")));
    }
    let mut summed = *page;
    summed[88..96].fill(0);
    if sum(&summed, 0) != u64_at(page, 88) {
        return wrong("its sum does not fit".into());
    }
    if u64_at(page, 40) != size {
        let what = format!("{size} bytes, but the header says {}", u64_at(page, 40));
        return Err(Place::Size.problem(what));
    }
    Ok(())
}

fn within(what: &str, value: u64, low: u64, high: u64) -> Result<(), String> {
    match value {
        value if (low..=high).contains(&value) => Ok(()),
        _ if low == high => Err(format!("{what} is {value}, not {low}")),
        _ => Err(format!("{what} is {value}, not in {low} to {high}")),
    }
}
